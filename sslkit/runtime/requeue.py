"""Slurm: a job that is about to be stopped goes back into the queue, and resumes its run when it starts again.

`sbatch --signal=USR1@90 --requeue` sends SIGUSR1 to the processes of `srun` 90 seconds before the time limit or the
end of a preemption's grace time. A run always goes on after the last whole epoch, with the weights of an unbroken one.
"""

import os
import signal
import subprocess
import sys
import threading
from types import FrameType
from typing import Any

from sslkit.runtime.loop import Hook, Loop
from sslkit.terminal import say

JOB = "SLURM_JOB_ID"  # in the environment of a job; elsewhere none of this is needed
SIGNAL = getattr(signal, "SIGUSR1", None)  # not on Windows


class Requeue(Hook):
    """On SIGUSR1 in a Slurm job: requeue it and end the process, after the step if one is being computed.

    Rank 0 requeues the job, and Slurm ends its other processes. If Slurm refuses, training goes on.
    """

    def __init__(self) -> None:
        self.is_main = False
        self.in_step = False
        self.asked = False
        self._before: Any = None

    def begin(self, loop: Loop) -> None:
        self.is_main = loop.is_main
        if SIGNAL and _in_main_thread():
            self._before = signal.signal(SIGNAL, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if not self.in_step:
            self._stop()

    def batch_begin(self, loop: Loop) -> None:
        self.in_step = True

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        self.in_step = False
        if self.asked:
            self._stop()

    def _stop(self) -> None:
        self.asked = False
        if not self.is_main:
            return
        job = _job()
        if refusal := _refusal(job):
            say.warning(f"warning: Slurm did not requeue job {job} ({refusal}); training goes on until it is stopped")
            return
        say.line(f"job {job} is back in the queue; it will resume this run")
        sys.exit(0)

    def end(self, loop: Loop) -> None:
        if self._before is not None:
            signal.signal(SIGNAL, self._before)
            self._before = None


def is_requeued() -> bool:
    """Return whether this is a Slurm job that has run before."""
    return os.environ.get("SLURM_RESTART_COUNT", "0") not in ("", "0")


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _job() -> str:
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else os.environ[JOB]


def _refusal(job: str) -> str:
    """Return why `scontrol requeue` failed, "" if it did not."""
    try:
        done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"
