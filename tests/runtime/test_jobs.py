"""Processes side by side: limits, memory, failures, and that none is left behind."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from odd_disks import lockless

from sslkit.errors import UserError
from sslkit.files import writing
from sslkit.runtime import jobs
from sslkit.runtime.jobs import (
    MARGIN,
    Job,
    Machine,
    check_logs,
    cores,
    fitting,
    free_memory,
    last_lines,
    run_all,
    wait_for_orphans,
)

GIB = 2**30
MARK = "import pathlib, sys, time; me = pathlib.Path(sys.argv[1]); me.touch(); other = pathlib.Path(sys.argv[2])\n"
MEET = MARK + "end = time.time() + 20\nwhile not other.exists() and time.time() < end: time.sleep(0.02)\n"
MEET += "sys.exit(0 if other.exists() else 7)\n"  # only two at once can meet


@pytest.fixture(autouse=True)
def look_often(monkeypatch) -> None:
    monkeypatch.setattr("sslkit.runtime.jobs.LOOK", 0.02)


def job(tmp_path: Path, name: str, code: str, *words: object, settled=lambda began: True) -> Job:
    return Job(name, [sys.executable, "-c", code, *map(str, words)], tmp_path / "logs" / f"{name}.log", settled)


def codes(jobs: list[Job], machine: Machine) -> dict[str, int]:
    return {outcome.job.name: outcome.code for outcome in run_all(jobs, machine)}


def pair(tmp_path: Path, code: str) -> list[Job]:
    return [job(tmp_path, one, code, tmp_path / one, tmp_path / other) for one, other in ("ab", "ba")]


def test_two_run_side_by_side_and_one_at_a_time_if_asked(tmp_path) -> None:
    assert codes(pair(tmp_path, MEET), Machine(cores=2, asked=2)) == {"a": 0, "b": 0}
    alone = MARK + "time.sleep(0.5); me.unlink(); sys.exit(other.exists())\n"
    for name in "ab":
        (tmp_path / name).unlink()
    assert codes(pair(tmp_path, alone), Machine(cores=2, asked=1)) == {"a": 0, "b": 0}


@pytest.mark.parametrize(("free", "at_once"), [(100 * GIB, 2), (0, 1)])
def test_auto_measures_the_first_and_says_what_it_chose(free: int, at_once: int, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    said: list[str] = []
    code = MEET if at_once == 2 else MARK + "time.sleep(0.5); sys.exit(0)\n"
    jobs = pair(tmp_path, code)
    ended = list(run_all(jobs, Machine(cores=2, free=lambda: free), said.append))
    assert [outcome.code for outcome in ended] == [0, 0]
    threads = "1 thread" if at_once == 2 else "2 threads"
    assert len(said) == 1 and said[0].startswith(f"jobs=auto: {at_once} at once, {threads} each, on 2 cores; ")
    assert f"{free / GIB:.1f} GiB are free" in said[0]


def test_auto_waits_until_the_first_has_settled(tmp_path) -> None:
    """The second starts only when the first has made its file, 0.6 seconds in."""
    code = "import pathlib, sys, time; time.sleep(0.6); pathlib.Path(sys.argv[1]).touch(); time.sleep(0.5)"
    first = job(tmp_path, "first", code, tmp_path / "x", settled=lambda began: (tmp_path / "x").exists())
    second = job(
        tmp_path, "second", "import pathlib, sys; sys.exit(not pathlib.Path(sys.argv[1]).exists())", tmp_path / "x"
    )
    assert codes([first, second], Machine(cores=2, free=lambda: 100 * GIB)) == {"first": 0, "second": 0}


def test_a_first_that_fails_measures_nothing(tmp_path) -> None:
    """It has settled nothing, so the next is measured, alone; the two after it meet."""
    jobs = [job(tmp_path, "broken", "raise SystemExit(3)", settled=lambda began: False)]
    jobs += [job(tmp_path, "measured", "import time; time.sleep(0.4)", settled=lambda began: False)]
    jobs += pair(tmp_path, MEET)
    said: list[str] = []
    ended = list(run_all(jobs, Machine(cores=2, free=lambda: 100 * GIB), said.append))
    assert {o.job.name: o.code for o in ended} == {"broken": 3, "measured": 0, "a": 0, "b": 0}
    assert len(said) == 1


def test_the_peak_is_that_of_the_process_and_its_children(tmp_path) -> None:
    hold = "x = bytearray(100 * 2**20); x[::4096] = b'1' * len(x[::4096]); import time; time.sleep(1)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    (outcome,) = run_all([job(tmp_path, "a", code)], Machine(cores=1))
    assert 100 * 2**20 < outcome.peak < 400 * 2**20 and outcome.code == 0 and outcome.seconds > 1


def test_a_failure_leaves_the_others_and_its_last_words(tmp_path) -> None:
    jobs = [job(tmp_path, "bad", "print('one\\n\\ntwo'); raise SystemExit('three')"), job(tmp_path, "good", "print(1)")]
    assert codes(jobs, Machine(cores=1, asked=1)) == {"bad": 1, "good": 0}
    assert last_lines(jobs[0].log, 2) == ["two", "three"]
    assert codes([job(tmp_path, "bad", "print('again')")], Machine(cores=1)) == {"bad": 0}
    assert last_lines(jobs[0].log) == ["again"], "only what the last command said"


@pytest.mark.parametrize("stubborn", [False, True])
def test_leaving_early_stops_what_runs(stubborn: bool, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sslkit.runtime.jobs.GRACE", 0.5)
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" if stubborn else ""
    code = (
        ignore + "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(60)"
    )
    long = job(tmp_path, "long", code, tmp_path / "pid")
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(tmp_path / 'pid')!r}).exists(): time.sleep(0.02)"
    with closing(run_all([long, job(tmp_path, "short", wait)], Machine(cores=2, asked=2))) as outcomes:
        assert next(outcomes).job.name == "short"
        pid = int((tmp_path / "pid").read_text())
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("has_locks", [True, False])
def test_a_job_that_outlives_its_parent_is_not_started_twice(has_locks: bool, tmp_path, monkeypatch) -> None:
    (tmp_path / "own").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "own"))
    monkeypatch.setattr(writing, "_SYSTEMS", {})
    if not has_locks:
        monkeypatch.setattr(fcntl, "flock", lockless(tmp_path / "logs"))
    code = (
        "import fcntl, sys; from pathlib import Path; from sslkit.runtime.jobs import Job, Machine, run_all\n"
        "from odd_disks import lockless; log = Path(sys.argv[1])\n"
        f"fcntl.flock = fcntl.flock if {has_locks} else lockless(log.parent)\n"
        "nap = 'import os, time; print(os.getpid(), flush=True); time.sleep(60)'\n"
        "list(run_all([Job('nap', [sys.executable, '-c', nap], log)], Machine(1)))\n"
    )
    log = tmp_path / "logs" / "nap.log"
    where = {"TMPDIR": str(tmp_path / "own"), "PYTHONPATH": str(Path(__file__).parents[1])}
    parent = subprocess.Popen([sys.executable, "-c", code, str(log)], env={**os.environ, **where})
    while not (log.is_file() and last_lines(log)):
        time.sleep(0.05)
        assert parent.poll() is None
    child = int(last_lines(log)[0])
    parent.kill()
    parent.wait()
    with pytest.raises(UserError, match="another process still trains nap"):
        check_logs([job(tmp_path, "nap", "")])
    told: list[str] = []

    def end_it(line: str) -> None:
        told.append(line)
        os.kill(child, signal.SIGKILL)

    monkeypatch.setattr(jobs, "line", end_it)
    wait_for_orphans(log.parent)
    assert told == [f"process {child} of a killed zoo.py still trains nap: waiting for it"]
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)
    check_logs([job(tmp_path, "nap", "")])


def test_a_log_that_cannot_be_written(tmp_path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(UserError, match="cannot write the log"):
        check_logs([job(tmp_path, "a", "")])


def test_how_many_fit() -> None:
    peak = 4 * GIB
    assert fitting(0, peak, 8) == 1
    assert fitting(int(MARGIN * peak) - 1, peak, 8) == 1
    assert fitting(int(MARGIN * peak), peak, 8) == 2
    assert fitting(100 * GIB, peak, 8) == 8
    assert [Machine(16).most(n) for n in (1, 5, 40)] == [1, 5, 16]
    assert [Machine(16, each=4).most(40), Machine(16, asked=3).most(40), Machine(2, each=4).most(9)] == [4, 3, 1]
    assert [Machine(64, ("0", "1", "2"), each).most(40) for each in (1, 2)] == [3, 1]


def test_cores_and_gpus_are_shared_out(monkeypatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert Machine(16).environment(0, 5) == {"OMP_NUM_THREADS": "3"}
    assert Machine(2).environment(1, 8) == {"OMP_NUM_THREADS": "1"}
    assert Machine(0, asked=3).environment(1, 3) == {}
    four = Machine(64, ("0", "3", "5", "7"))
    assert [four.environment(slot, 4)["CUDA_VISIBLE_DEVICES"] for slot in range(5)] == ["0", "3", "5", "7", "0"]
    assert four.environment(0, 4)["OMP_NUM_THREADS"] == "16"
    pairs = Machine(64, ("0", "3", "5", "7", "9"), each=2)
    assert [pairs.environment(slot, 2)["CUDA_VISIBLE_DEVICES"] for slot in range(3)] == ["0,3", "5,7", "0,3"]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert "OMP_NUM_THREADS=5 threads each" in jobs._chosen(Machine(16), 5, 2**30)
    assert Machine(16).environment(0, 4) == {}, "what is set stays"


def test_the_child_sees_its_share(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    one = job(tmp_path, "a", "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['CUDA_VISIBLE_DEVICES'])")
    assert codes([one], Machine(6, ("GPU-x", "GPU-y"), asked=2)) == {"a": 0}
    assert last_lines(one.log) == ["6 GPU-x"]


def test_this_machine() -> None:
    assert 0 < free_memory() <= psutil.virtual_memory().total and cores() >= 1
