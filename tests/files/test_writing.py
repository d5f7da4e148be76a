"""Files that are written whole, and their locks, on file systems that lack something."""

import errno
import fcntl
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from odd_disks import lockless, read_only

from evaluation.results.records import Records, run_id
from evaluation.tuning.recorded import each_recorded
from sslkit.errors import RunFailed, UserError
from sslkit.files import writing
from sslkit.files.blocks import Blocks, create_npy
from sslkit.files.writing import exclusive, lock, write_whole, write_whole_folder
from sslkit.runtime.jobs import Job, check_logs
from sslkit.runtime.kept_arrays import load_or_compute


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This machine's own folder of temporary files, on another disk than the tests'."""
    folder = tmp_path_factory.mktemp("own")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(writing, "_SYSTEMS", {})
    return folder


def use_all(folder: Path) -> None:
    """Everything that takes a lock."""
    with exclusive(folder / "cache" / "a.npz", "an index"):
        pass
    path = folder / "cache" / "b.npy"
    assert load_or_compute(path, 3, lambda rows: [np.ones((3, 2))], what="ones").tolist() == [[1, 1]] * 3
    check_logs([Job("member", ["true"], folder / "zoo" / "logs" / "member.log")])
    records = Records(folder / "runs.jsonl")
    with records.claim({"lr": 1}, wait=False) as mine:
        records.add({"lr": 1}, {"value": 0.5})
    assert mine and records.find({"lr": 1})["value"] == 0.5


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
@pytest.mark.parametrize("who", ["commands on two machines", "two commands"])
def test_without_locks_all_goes_on_after_one_line(
    number: int,
    who: str,
    elsewhere: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    without = tmp_path if who == "commands on two machines" else Path("/")
    monkeypatch.setattr(fcntl, "flock", lockless(without, number))
    use_all(tmp_path)
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert said.startswith(f"warning: the file system of {tmp_path / 'cache'} has no locks (flock): {who} that write")
    assert Records(tmp_path / "runs.jsonl").are_shared() == (without == tmp_path)


def test_without_locks_commands_on_one_machine_still_wait(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lockless(tmp_path))
    monkeypatch.chdir(tmp_path)
    records = Records(tmp_path / "runs.jsonl")
    with records.claim({"lr": 1}, wait=False) as mine, records.claim({"lr": 1}, wait=False) as theirs:
        assert mine and not theirs


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_the_folder_of_another_user_is_not_trusted_with_locks(elsewhere: Path, tmp_path: Path) -> None:
    own = elsewhere / f"sslkit-{os.getuid()}"
    assert writing._own_folder() == own and own.stat().st_mode & 0o777 == 0o700
    os.chown(own, 65534, 65534)
    assert writing._own_folder() is None


USERS = [".a.lock", ".b.lock", f".runs.locks/{run_id({'lr': 1})}.lock"]


def use(lock_file: str, folder: Path, work: Callable[[], None]) -> None:
    """Let the user of a lock call work()."""
    if lock_file == ".a.lock":
        with exclusive(folder / "a.npz", "an index"):
            work()
    elif lock_file == ".b.lock":
        load_or_compute(folder / "b.npy", 3, lambda rows: work() or [np.ones((3, 2))], what="ones")
    else:
        each_recorded([{"lr": 1}], Records(folder / "runs.jsonl"), lambda number: work() or {"value": 1})


@pytest.mark.parametrize("without", [False, True])
@pytest.mark.parametrize("lock_file", USERS)
def test_a_killed_process_holds_no_lock(
    lock_file: str,
    without: bool,
    elsewhere: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    if without:
        monkeypatch.setattr(fcntl, "flock", lockless(tmp_path))
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def hold() -> None:
        sender.send("held")
        time.sleep(60)

    holder = context.Process(target=use, args=(lock_file, tmp_path, hold))
    holder.start()
    assert receiver.poll(30)
    with lock(tmp_path / lock_file, wait=False) as mine:
        assert not mine
    holder.kill()
    holder.join()
    assert holder.exitcode == -signal.SIGKILL
    done = []
    use(lock_file, tmp_path, lambda: done.append("worked"))
    assert done and "waiting" not in capsys.readouterr().out


def test_what_is_there_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"index")

    def use() -> str:
        with exclusive(tmp_path / "a.npz", "the index") as refused:
            assert (tmp_path / "a.npz").read_bytes() == b"index"
        with exclusive(tmp_path / "b.npz", "the index"):
            return f"it was entered after {refused}"

    said = f"UserError: cannot write the index in {tmp_path}: Permission denied; choose another folder"
    assert read_only(tmp_path, use).startswith(said)


def test_stored_arrays_and_records_are_read_where_nothing_can_be_written(tmp_path: Path) -> None:

    def array(name: str) -> np.ndarray:
        return load_or_compute(tmp_path / name, 3, lambda rows: [np.ones((3, 2))], what="ones")

    def runs() -> list:
        return each_recorded([{"lr": 1}, {"lr": 2}], Records(tmp_path / "runs.jsonl"), lambda number: {"value": number})

    array("a.npy"), runs()
    shutil.rmtree(tmp_path / ".runs.locks")  # of a folder that was copied without them
    said = read_only(tmp_path, lambda: f"{array('a.npy').sum()} {[run['value'] for run in runs()]}")
    assert said == "6.0 [0, 1]"
    assert read_only(tmp_path, lambda: array("b.npy")).startswith("UserError: cannot write ones in")
    for name, use in (
        ("runs.jsonl", lambda path: each_recorded([{"lr": 3}], Records(path), lambda number: 1 / 0)),
        ("others.jsonl", Records),
    ):
        said = read_only(tmp_path, partial(use, tmp_path / name))
        assert said == f"UserError: cannot write to {tmp_path / name}: Permission denied; give another out"


def test_a_writer_on_another_machine_is_left_alone(tmp_path: Path) -> None:
    """Both see the same disk, and their processes may have the same number."""
    here, other = f".a.png.{writing.MACHINE}-999999999-a.part", ".a.png.0badc0de-999999999-a.part"
    for name in (here, other):
        (tmp_path / name).touch()
    (tmp_path / here.replace("png", "hf")).mkdir()  # of a folder, with a file in it
    (tmp_path / here.replace("png", "hf") / "b").touch()
    writing.sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [other]
    os.utime(tmp_path / other, (0, 0))  # the file of a writer that was killed long ago
    writing.sweep(tmp_path)
    assert not any(tmp_path.iterdir())
    with write_whole(tmp_path / "b.txt") as mine:  # the other machine may even have the same name
        with write_whole(tmp_path / "b.txt") as theirs:
            theirs.write_text("theirs")
        mine.write_text("mine")
    assert mine != theirs and (tmp_path / "b.txt").read_text() == "mine"


def test_a_container_is_a_machine_of_its_own() -> None:
    """Its processes have other numbers than those outside, and it may have the same name."""
    code = "import socket; from sslkit.files.writing import MACHINE; print(socket.gethostname(), MACHINE)"
    contain = ["unshare", *(["--map-root-user"] if os.getuid() else []), "--pid", "--fork"]
    if not shutil.which("unshare") or subprocess.run([*contain, "true"], capture_output=True).returncode:
        pytest.skip("no container can be made here")
    for command, here in (([], True), (contain, False)):
        said = subprocess.run([*command, sys.executable, "-c", code], capture_output=True, text=True, check=True)
        name, machine = said.stdout.split()
        assert name == socket.gethostname() and (machine == writing.MACHINE) == here


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, RunFailed), (errno.EACCES, UserError)])
def test_a_full_disk_is_no_wrong_input(number: int, kind: type, tmp_path: Path) -> None:
    for write in (write_whole, partial(write_whole_folder, last="b")):
        with pytest.raises(UserError, match="the old content is unchanged") as told, write(tmp_path / "a"):
            raise OSError(number, os.strerror(number))
        assert type(told.value) is kind


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A disk on which longer files fail with EFBIG."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_run_ends_as_failed_where_the_disk_is_full(tmp_path: Path) -> None:
    def whole() -> None:
        with write_whole(tmp_path / "a") as path:
            path.write_bytes(b"a" * 9999)

    blocks = Blocks(tmp_path / "key.part", 3000, 3000, "ones")

    def keep(block: np.ndarray) -> None:
        blocks.write(range(len(block)), x=block)
        blocks.flush()

    def publish(shape: tuple[int, ...]) -> None:
        with blocks.publish(tmp_path / "key") as path:
            create_npy(path, shape)

    writers = {
        "a": whole,
        "b.npy": lambda: load_or_compute(tmp_path / "b.npy", 3000, lambda rows: [np.ones((3000, 2))], what="ones"),
        "c.jsonl": lambda: Records(tmp_path / "c.jsonl").add({"lr": 1}, {"value": "v" * 9999}),
        "key.part": lambda: keep(np.ones((3000, 2))),
        "ones in": lambda: publish((3000, 2)),
    }
    for name, write in writers.items():
        with files_of_at_most(4096), pytest.raises(RunFailed, match=f"cannot write .*{name}.*File too large"):
            write()
