"""Run commands in parallel on one machine, as many as cores, GPUs and memory allow, each with its own log."""

import fcntl
import os
import platform
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sslkit.errors import UserError
from sslkit.files.writing import lockable
from sslkit.terminal.say import counted, line

LOOK = 0.2  # seconds between two checks of the processes: below what a person notices
GRACE = 15.0  # seconds for a stopped process to end by itself: it saves a checkpoint
MARGIN = 1.25  # factor on the largest memory peak so far: a guess, as later members may need more than the first


def free_memory() -> int:
    """Free bytes for new processes: of the machine, or of the container if that has less."""
    import psutil  # 15 ms, and help has none

    free = psutil.virtual_memory().available
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        told = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such file, or "max": no limit
        return free
    return max(0, min(free, limit - used + int(told.get("inactive_file", 0))))


def processor() -> str:
    """Return the name of this machine's processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Job:
    """A command. settled: takes the start time (seconds since 1970), returns whether memory use is steady."""

    name: str
    command: Sequence[str]
    log: Path
    settled: Callable[[float], bool] = lambda began: True


@dataclass(frozen=True)
class Outcome:
    """The result of a job.

    code: its exit code, negative for a signal. peak: bytes, with its children. beside: jobs still running at its end.
    """

    job: Job
    code: int
    seconds: float
    peak: int
    beside: int


@dataclass(frozen=True)
class Machine:
    """The resources shared by the jobs.

    cores: CPU cores to share out; 0: none, for jobs that wait for other machines. gpus: identifiers for
    CUDA_VISIBLE_DEVICES, none for the CPU. each: GPUs of a job, or processes that it starts on the CPU. asked: parallel
    jobs; None: as many as fit. free: returns the free bytes of memory.
    """

    cores: int
    gpus: Sequence[str] = ()
    each: int = 1
    asked: int | None = None
    free: Callable[[], int] = free_memory

    def most(self, jobs: int) -> int:
        """Maximum number of parallel jobs, without the memory limit."""
        return max(1, min(jobs, self.asked or (len(self.gpus) or self.cores) // self.each))

    def threads(self, at_once: int) -> int:
        """Threads of each process."""
        return max(1, self.cores // (at_once * self.each))

    def environment(self, slot: int, at_once: int) -> dict[str, str]:
        """Variables for the job in a slot: its share of the cores, unless OMP_NUM_THREADS is set, and its GPUs."""
        variables = {}
        if self.cores and "OMP_NUM_THREADS" not in os.environ:
            variables["OMP_NUM_THREADS"] = str(self.threads(at_once))
        if self.gpus:
            first = slot % max(1, len(self.gpus) // self.each) * self.each
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus[first : first + self.each])
        return variables


def fitting(free: int, peak: int, most: int) -> int:
    """Number of processes with this peak that fit: the measured one, and others in the free bytes."""
    return max(1, min(most, 1 + int(free // max(1, MARGIN * peak))))


def run_all(jobs: Sequence[Job], machine: Machine, say: Callable[[str], None] = line) -> Iterator[Outcome]:
    """Run the jobs and yield each outcome when it ends. Closed early, for example by Ctrl-C, it stops running jobs.

    If `machine.asked` is None, one job runs alone until it has settled; its memory peak then sets the number of
    parallel jobs. Later jobs wait while free memory is below the largest peak so far.
    """
    waiting, running, largest = list(jobs), [], 0
    at_once = machine.most(len(jobs))
    decided = machine.asked is not None or at_once == 1
    try:
        while waiting or running:
            largest = max([largest, *(job.look() for job in running)])
            settled = any(job.has_settled() for job in running)
            for done in [job for job in running if job.process.poll() is not None]:
                running.remove(done)
                settled |= done.process.returncode == 0
                yield done.outcome(len(running))
            if settled and not decided:
                at_once, decided = fitting(machine.free(), largest, at_once), True
                say(_chosen(machine, at_once, largest))
            limit = at_once if decided else 1
            while waiting and len(running) < limit and _fits(machine, running, largest):
                slot = min(set(range(limit)) - {job.slot for job in running})
                running.append(_start(waiting.pop(0), slot, machine.environment(slot, at_once)))
            time.sleep(LOOK)
    finally:
        _stop(running)


def _chosen(machine: Machine, at_once: int, largest: int) -> str:
    where = counted(len(machine.gpus), "GPU") if machine.gpus else counted(machine.cores, "core")
    inherited = os.environ.get("OMP_NUM_THREADS")  # the jobs inherit it
    threads = (
        counted(machine.threads(at_once), "thread") if inherited is None else f"OMP_NUM_THREADS={inherited} threads"
    )
    return (
        f"jobs=auto: {at_once} at once, {threads} each, on {where}; the first took "
        f"{largest / 2**30:.1f} GiB of memory, {machine.free() / 2**30:.1f} GiB are free"
    )


def _fits(machine: Machine, running: Sequence["_Running"], largest: int) -> bool:
    """Return whether one more job fits, allowing for the growth of the running ones."""
    if not running or machine.asked is not None:
        return True
    growth = sum(max(0, MARGIN * largest - job.now) for job in running)
    return machine.free() - growth >= MARGIN * largest


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen
    slot: int
    began: float
    now: int = 0
    peak: int = 0

    def has_settled(self) -> bool:
        return self.job.settled(self.began)

    def look(self) -> int:
        """The peak resident memory of the process and its children; shared pages count for each of them."""
        import psutil

        self.now = 0
        try:
            parent = psutil.Process(self.process.pid)
            for process in (parent, *parent.children(recursive=True)):
                self.now += process.memory_info().rss
        except psutil.Error:  # one of them has just ended
            pass
        self.peak = max(self.peak, self.now)
        return self.peak

    def outcome(self, beside: int) -> Outcome:
        return Outcome(self.job, self.process.returncode, time.time() - self.began, self.peak, beside)


def _start(job: Job, slot: int, environment: dict[str, str]) -> _Running:
    with _lock_log(job) as (log, held):
        log.write(f"\n$ {shlex.join(job.command)}\n".encode())
        log.flush()
        began = time.time()
        process = subprocess.Popen(
            job.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
            pass_fds=[held.fileno()],
            start_new_session=True,  # so that Ctrl-C reaches it once, through `_stop`
        )
    return _Running(job, process, slot, began)


@contextmanager
def _lock_log(job: Job) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open the log for the job and lock it, or a file in its place; yields both.

    The lock lasts as long as the job has the locked file open, also where this process is killed.
    """
    with ExitStack() as opened:
        try:
            job.log.parent.mkdir(parents=True, exist_ok=True)
            log = opened.enter_context(job.log.open("ab"))
            lock_file = lockable(job.log)
            held = log if lock_file in (job.log, None) else opened.enter_context(lock_file.open("ab"))
        except OSError as error:
            raise UserError(
                f"cannot write the log {job.log}: {error.strerror}; choose another folder with out="
            ) from error
        if lock_file is not None and not _is_free(held):
            raise UserError(f"another process still trains {job.name} (and writes {job.log}): wait, or end it")
        yield log, held


def wait_for_orphans(logs: Path) -> None:
    """Wait for the jobs that outlive the process that began them; a line names each. logs: folder of their logs."""
    for log in sorted(logs.glob("*.log")):
        lock_file = lockable(log)
        with (lock_file or log).open("ab") as held:
            if lock_file is not None and not _is_free(held):
                line(f"process {_writer(lock_file)} of a killed zoo.py still trains {log.stem}: waiting for it")
                fcntl.flock(held, fcntl.LOCK_EX)


def _is_free(held: IO[bytes]) -> bool:
    """Lock a file, unless another process has."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _writer(file: Path) -> str:
    """The number of the first process, beside this one, that has a file open to write; "?" if that is not known."""
    import psutil

    def has_it(process: psutil.Process) -> bool:
        try:
            return any(opened.path == str(file.resolve()) and opened.mode != "r" for opened in process.open_files())
        except (psutil.Error, OSError, AttributeError):  # another user's; a system that knows no modes
            return False

    writers = [
        process for process in psutil.process_iter(["create_time"]) if process.pid != os.getpid() and has_it(process)
    ]
    return str(min(writers, key=lambda one: one.info["create_time"]).pid) if writers else "?"


def check_logs(jobs: Sequence[Job]) -> None:
    """Raises UserError if a log cannot be written, or if another process is at work on one of the jobs."""
    for job in jobs:
        with _lock_log(job):
            pass


def last_lines(log: Path, count: int = 8) -> list[str]:
    """The last lines of the last command in a log."""
    lines = log.read_text(errors="replace").rpartition("\n$ ")[2].splitlines()
    return [line for line in lines[1:] if line.strip()][-count:]


def _stop(running: Sequence[_Running]) -> None:
    """Ask the processes to end; kill them after a grace period, or on a second Ctrl-C."""
    for job in running:
        if job.process.poll() is None:
            job.process.send_signal(signal.SIGINT)
    end = time.monotonic() + GRACE
    for job in running:
        try:
            job.process.wait(max(0.0, end - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            end = 0.0
            os.killpg(job.process.pid, signal.SIGKILL)
            job.process.wait()
