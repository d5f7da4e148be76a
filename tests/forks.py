"""Processes that are there at once: copies of this one, which has imported all that they need."""

import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp

WORLD = 2


def start_ranks(work: Callable[..., None], *arguments: Any) -> None:
    """Call work(rank, *arguments) in each of WORLD processes and wait for both; raises what one of them raised."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    mp.start_processes(work, arguments, nprocs=WORLD, start_method="fork")


def exit_code(log: Path, function: Callable[..., None], *arguments: Any) -> int:
    """The exit code of a process that calls function(*arguments); what it prints is in `log`.

    It may patch what it likes and be killed: nothing of it comes back.
    """
    process = mp.get_context("fork").Process(target=_logged, args=(log, function, arguments))
    process.start()
    process.join(300)
    process.kill()
    process.join()
    return process.exitcode


def _logged(log: Path, function: Callable[..., None], arguments: tuple) -> None:
    torch.set_num_threads(1)
    with log.open("w", buffering=1) as file, redirect_stdout(file), redirect_stderr(file):
        function(*arguments)
