"""A folder has one owner at a time: a second is refused in one line, the folder of a dead one is taken over."""

import json
import os
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

from sslkit.errors import UserError
from sslkit.files import leases
from sslkit.files.leases import NAME, own_file, own_folder


def written(folder: Path, **other: object) -> Path:
    """The lease of another process."""
    about = {"machine": leases.MACHINE, "host": "far", "pid": 1, "token": "t", "work": "trains in", "began": 0.0}
    path = folder / NAME
    path.write_text(json.dumps({**about, **other}))
    return path


def test_a_second_owner_is_refused_and_the_folder_is_free_afterwards(tmp_path: Path) -> None:
    line = rf"^process {os.getpid()} trains in .*: wait until it has ended, or end it$"
    with own_folder(tmp_path, "trains in"):
        with pytest.raises(UserError, match=line), own_folder(tmp_path, "trains in"):
            pytest.fail("two owners")
        assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert not list(tmp_path.iterdir())


def test_files_in_one_folder_have_their_own_owners(tmp_path: Path) -> None:
    with (
        own_file(tmp_path / "new" / "a.npz", "embeds to"),
        own_file(tmp_path / "new" / "b.npz", "embeds to"),
        pytest.raises(UserError, match=rf"^process {os.getpid()} embeds to {tmp_path}/new/a\.npz: wait"),
        own_file(tmp_path / "new" / "a.npz", "embeds to"),
    ):
        pytest.fail("two owners")
    assert not list((tmp_path / "new").iterdir())


def test_where_nothing_can_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    line = r"cannot write into .*/file: .*; choose another folder with out="
    with pytest.raises(UserError, match=line), own_folder(tmp_path / "file", "trains in"):
        pytest.fail("it is no folder")


def test_an_owner_lives_although_the_clock_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil adds the time of the machine's start, which Linux moves with the clock."""
    with own_folder(tmp_path, "trains in"):
        began = psutil.Process.create_time
        monkeypatch.setattr(psutil.Process, "create_time", lambda self: began(self) + 3600)
        with pytest.raises(UserError, match="trains in"), own_folder(tmp_path, "trains in"):
            pytest.fail("two owners")


def test_one_that_was_killed_is_followed_and_a_later_process_of_its_number_is_not_it(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "60"])
    written(tmp_path, pid=other.pid, began=leases._began(other.pid))
    with pytest.raises(UserError, match=f"process {other.pid} trains in"), own_folder(tmp_path, "trains in"):
        pytest.fail("two owners")
    other.kill()  # it stays as a zombie until `wait`
    time.sleep(0.2)
    with own_folder(tmp_path, "trains in"):
        assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()
    other.wait()
    written(tmp_path, pid=os.getpid(), began=0.0)  # the number is in use again
    with own_folder(tmp_path, "trains in"):
        pass


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEWED", 0.05)
    monkeypatch.setattr(leases, "SILENCE", 1.0)


def test_on_another_machine_signs_are_compared_and_no_clocks(quick: None, tmp_path: Path) -> None:
    """The other machine's clock is a year behind: its file is old by ours, and it lives all the same."""
    path, past = written(tmp_path, machine="other"), time.time() - 365 * 24 * 3600
    os.utime(path, (past, past))
    ended = threading.Event()

    def live() -> None:
        for second in range(1000):
            if ended.wait(0.05):
                return
            os.utime(path, (past + second, past + second))

    living = threading.Thread(target=live)
    living.start()
    with pytest.raises(UserError, match="process 1 on far trains in"), own_folder(tmp_path, "trains in"):
        pytest.fail("two owners")
    ended.set()
    living.join()
    os.utime(path, (time.time() + 1e6,) * 2)  # a sign from the future, and none after it
    with own_folder(tmp_path, "trains in"):
        assert json.loads(path.read_text())["machine"] == leases.MACHINE


def test_a_lease_is_renewed(quick: None, tmp_path: Path) -> None:
    with own_folder(tmp_path, "trains in"):
        first = leases._sign(tmp_path / NAME)
        end = time.monotonic() + 30
        while leases._sign(tmp_path / NAME) == first:
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.mark.parametrize("attempt", range(10))
def test_of_several_that_take_over_one_wins(attempt: int, tmp_path: Path) -> None:
    written(tmp_path, pid=2**22 + 1, began=1.0)
    held, refused, together = threading.Event(), [], threading.Barrier(8)
    owners: list[int] = []

    def take(number: int) -> None:
        together.wait()
        try:
            with own_folder(tmp_path, "trains in"):
                owners.append(number)
                held.wait(30)
        except UserError as error:
            refused.append(str(error))
            if len(refused) == 7:
                held.set()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(owners) == 1 and len(refused) == 7 and not list(tmp_path.iterdir())


def test_one_that_died_while_it_took_over_is_followed_too(tmp_path: Path) -> None:
    dead = {"pid": 2**22 + 1, "began": 1.0}
    written(tmp_path, **dead, token="a").rename(tmp_path / "b")
    written(tmp_path, **dead, token="c").rename(tmp_path / f"{NAME}-after-a")
    (tmp_path / "b").rename(tmp_path / NAME)
    with own_folder(tmp_path, "trains in"):
        assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()
        with pytest.raises(UserError, match="trains in"), own_folder(tmp_path, "trains in"):
            pytest.fail("two owners")
    assert not list(tmp_path.iterdir())


def test_one_that_comes_late_takes_nothing_from_who_took_over(tmp_path: Path, monkeypatch) -> None:
    """It has looked at the dead owner's lease before another process took that over, and writes after it."""
    written(tmp_path, pid=2**22 + 1, began=1.0)
    write, together = leases._written, []

    def late(file: Path, own: dict) -> bool:
        if not together:
            together.append(own_folder(tmp_path, "was faster in"))
            together[0].__enter__()
        return write(file, own)

    monkeypatch.setattr(leases, "_written", late)
    with pytest.raises(UserError, match="was faster in"), own_folder(tmp_path, "trains in"):
        pytest.fail("two owners")
    together[0].__exit__(None, None, None)
    assert not list(tmp_path.iterdir())


def test_a_damaged_lease_is_watched_like_one_of_another_machine(quick: None, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{")
    with own_folder(tmp_path, "trains in"):
        pass
