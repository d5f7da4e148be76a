"""Two processes that are there at once: copies of this one, which has imported all that they need."""

import os
from collections.abc import Callable
from typing import Any

import torch.multiprocessing as mp

WORLD = 2


def start_ranks(work: Callable[..., None], *arguments: Any) -> None:
    """Call work(rank, *arguments) in each of WORLD processes and wait for both; raises what one of them raised."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    mp.start_processes(work, arguments, nprocs=WORLD, start_method="fork")
