"""Processes that are there at once: copies of one that has imported what they need and done nothing else.

A copy of the tests' own process could not train: autograd may have started its threads there.
"""

import os
import signal
import socket
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from sslkit.terminal import say

WORLD = 2
IMPORTED = [
    "torch._dynamo",
    "sklearn.manifold",
    "matplotlib.pyplot",
    "sslkit.training.pretrain",
    "lightly.loss",
    "sslkit.models.loading",
]


def set_timeout(seconds: float) -> None:
    """Let the barriers of this rank's group, and its store, wait so long; an older torch has the private name alone."""
    limit, module = timedelta(seconds=seconds), dist.distributed_c10d
    getattr(module, "set_timeout", module._set_pg_timeout)(limit)
    module._get_default_store().set_timeout(limit)


def start_ranks(work: Callable[..., None], *arguments: Any) -> None:
    """Call work(rank, *arguments) in each of WORLD processes and wait for both; raises what one of them raised."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    mp.set_forkserver_preload(IMPORTED)
    mp.start_processes(work, arguments, nprocs=WORLD, start_method="forkserver")


def listening() -> None:
    """Where the tests run in the background of a shell, Ctrl-C is ignored, and would be in what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def free_port() -> int:
    """A TCP port that nothing uses now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def started(log: Path, function: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A process that calls function(*arguments); what it prints is in `log`.

    It may patch what it likes and be killed: nothing of it comes back.
    """
    mp.set_forkserver_preload(IMPORTED)
    process = mp.get_context("forkserver").Process(target=_logged, args=(log, function, arguments))
    process.start()
    return process


def ended(process: BaseProcess) -> int:
    """Its exit code, when it has ended or five minutes are over."""
    process.join(300)
    process.kill()
    process.join()
    return process.exitcode


def exit_code(log: Path, function: Callable[..., None], *arguments: Any) -> int:
    """That of a process that is started and waited for."""
    return ended(started(log, function, *arguments))


def _logged(log: Path, function: Callable[..., None], arguments: tuple) -> None:
    torch.set_num_threads(1)
    say.print_lines()
    with log.open("w", buffering=1) as file, redirect_stdout(file), redirect_stderr(file):
        function(*arguments)
