"""Run small operations on one CPU thread: waking the others takes longer than an operation on some 100,000 pairs."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 2**20  # pairs of rows of z; measured: 2 threads break even between 1,000 and 2,000 rows


@contextmanager
def one_thread(x: torch.Tensor, pairs: int = 0) -> Iterator[None]:
    """Run operations on x, if it is on the CPU and `pairs` at most SMALL, on one core inside the context."""
    threads = torch.get_num_threads()
    if x.device.type != "cpu" or threads == 1 or pairs > SMALL:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
