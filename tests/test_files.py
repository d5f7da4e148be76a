"""Files that are written whole, and their locks, on file systems that lack something."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from evaluation.results.records import Records
from sslkit import files
from sslkit.errors import RunFailed, UserError
from sslkit.files import exclusive, lock, write_whole, write_whole_folder
from sslkit.stored import stored
from sslkit.training import sweep
from sslkit.training.processes import Job, check_logs
from sslkit.training.run import sweep as sweep_folder


@pytest.fixture(params=[errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def no_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose flock is not implemented."""

    def refuse(*_: object) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(files, "_SYSTEMS", {})
    monkeypatch.setattr(fcntl, "flock", refuse)


def test_without_locks_all_goes_on_after_one_line(
    no_locks: None, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    with exclusive(tmp_path / "cache" / "a.npz", "an index"), sweep.alone(tmp_path / "zoo"):
        pass
    path = tmp_path / "cache" / "b.npy"
    assert stored(path, 3, lambda rows: [np.ones((3, 2))], what="ones").tolist() == [[1, 1]] * 3
    check_logs([Job("member", ["true"], tmp_path / "zoo" / "logs" / "member.log")])
    records = Records(tmp_path / "runs.jsonl")
    with records.claim({"lr": 1}, wait=False) as mine:
        records.add({"lr": 1}, {"value": 0.5})
    assert mine and records.find({"lr": 1})["value"] == 0.5
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and said.startswith(f"warning: the file system of {tmp_path / 'cache'} has no locks")


HOLD = """
import sys, time
from pathlib import Path
from sslkit.files import exclusive
with exclusive(Path(sys.argv[1]), "an index"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_holds_no_lock(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "a.npz"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(file)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(files.Timeout):
        lock(tmp_path / ".a.lock").acquire(timeout=0)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with exclusive(file, "an index"):
        assert capsys.readouterr().out == ""


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in which nothing can be opened for writing, for root too."""
    folder = tmp_path / "read only"
    folder.mkdir()
    open_file, make = os.open, os.mkdir

    def inside(path: object) -> bool:
        return isinstance(path, (str, Path)) and Path(path).is_relative_to(folder)

    def opened(path: object, flags: int, *rest: object, **more: object) -> int:
        if inside(path) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system")
        return open_file(path, flags, *rest, **more)

    def made(path: object, *rest: object, **more: object) -> None:
        if inside(path):
            raise OSError(errno.EROFS, "Read-only file system")
        make(path, *rest, **more)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "mkdir", made)
    monkeypatch.setattr(files, "_SYSTEMS", {})
    return folder


def test_what_is_there_is_read_where_nothing_can_be_written(read_only: Path) -> None:
    with open(read_only / "a.npz", "wb") as file:
        file.write(b"index")
    with exclusive(read_only / "a.npz", "the index"):
        assert (read_only / "a.npz").read_bytes() == b"index"
    with (
        pytest.raises(UserError, match=r"cannot write the index in .*: Read-only file system; choose another folder"),
        exclusive(read_only / "b.npz", "the index"),
    ):
        raise AssertionError("it was entered")


def test_a_writer_on_another_machine_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both see the same disk, and their processes may have the same number."""
    here, other = f".a.png.{files.MACHINE}-999999999.part", ".a.png.0badc0de-999999999.part"
    for name in (here, other):
        (tmp_path / name).touch()
    sweep_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [other]
    with write_whole(tmp_path / "b.txt") as mine:
        monkeypatch.setattr(files, "MACHINE", "0badc0de")
        with write_whole(tmp_path / "b.txt") as theirs:
            theirs.write_text("theirs")
        mine.write_text("mine")
    assert mine != theirs and (tmp_path / "b.txt").read_text() == "mine"


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, RunFailed), (errno.EACCES, UserError)])
def test_a_full_disk_is_no_wrong_input(number: int, kind: type, tmp_path: Path) -> None:
    for write in (write_whole, write_whole_folder):
        with pytest.raises(UserError, match="the old content is unchanged") as told, write(tmp_path / "a"):
            raise OSError(number, os.strerror(number))
        assert type(told.value) is kind
