"""Signals that end a training: they are obeyed between two steps, when its state can be saved.

Slurm: a job that is about to be stopped goes back into the queue, and resumes its run when it starts again.
`sbatch --signal=USR1@90 --requeue` sends SIGUSR1 to the processes of `srun` 90 seconds before the time limit or the
end of a preemption's grace time. The run is saved first, and goes on after that step.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from sslkit.runtime.distributed import rank
from sslkit.terminal import say

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
JOB = "SLURM_JOB_ID"  # in the environment of a job; elsewhere none of this is needed
REQUEUE = getattr(signal, "SIGUSR1", None)  # not on Windows


class Stops:
    """Handlers of signals, from `begin` to `end`; a signal waits for the end of a step, a second one does not.

    save: saves the state of this moment, if it can be; it is called before a signal is obeyed outside a step.
    special: handlers of further signals. To obey another one is what would have happened without this: the handler
    before is called; where there was none, the process ends, with the usual exit code 128 + number.
    busy: whether a step is being computed. asked: the signal that waits; None: none does.
    """

    def __init__(self, save: Callable[[], None], special: Mapping[int, Callable[[], None]]) -> None:
        self.save, self.special = save, special
        self.busy = False
        self.asked: int | None = None
        self._before: dict[int, Any] = {}
        self._process = os.getpid()

    def begin(self) -> None:
        """Put the handlers in place, where Python lets a thread do that; an ignored signal stays ignored."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._process = os.getpid()
        for number in (*SIGNALS, *self.special):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, self._receive)

    def end(self) -> None:
        """Put the handlers of before back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def obey(self, number: int) -> None:
        """Do what the signal asks for; returns if training goes on all the same."""
        self.asked = None
        if number in self.special:
            self.special[number]()
        elif callable(handler := self._before[number]):
            handler(number, None)
        else:
            sys.exit(128 + number)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a worker forked meanwhile
            if number != signal.SIGINT:  # Ctrl-C reaches the parent too, which ends its workers
                os._exit(128 + number)
            return
        if self.busy and self.asked is None:
            self.asked = number
            return
        if not self.busy:
            self.busy = True
            self.save()
            self.busy = False
        self.obey(number)


def handlers() -> dict[int, Callable[[], None]]:
    """What a run does at signals of Slurm, once its state is saved; nothing outside a job."""
    return {REQUEUE: requeue} if REQUEUE and JOB in os.environ else {}


def requeue() -> None:
    """Requeue the job and end this process. If Slurm refuses, training goes on.

    The first process does this, and Slurm ends the others.
    """
    if rank() != 0:
        return
    job = _job()
    if refusal := _refusal(job):
        say.warning(f"warning: Slurm did not requeue job {job} ({refusal}); training goes on until it is stopped")
        return
    say.line(f"job {job} is back in the queue; it will resume this run")
    sys.exit(0)


def is_requeued() -> bool:
    """Return whether this is a Slurm job that has run before."""
    return os.environ.get("SLURM_RESTART_COUNT", "0") not in ("", "0")


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
