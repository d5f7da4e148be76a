"""Slurm: a job that is about to be stopped goes back into the queue, and resumes its run when it starts again.

`sbatch --signal=USR1@90 --requeue` sends SIGUSR1 to the processes of `srun` 90 seconds before the time limit or the
end of a preemption's grace time. The run is saved first, and goes on after that step.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable

from sslkit.runtime.distributed import rank
from sslkit.terminal import say

JOB = "SLURM_JOB_ID"  # in the environment of a job; elsewhere none of this is needed
SIGNAL = getattr(signal, "SIGUSR1", None)  # not on Windows


def handlers() -> dict[int, Callable[[], None]]:
    """What a run does at signals of Slurm, once its state is saved; nothing outside a job."""
    return {SIGNAL: requeue} if SIGNAL and JOB in os.environ else {}


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
