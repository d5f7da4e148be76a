"""Limit the number of threads: where synchronisation takes longer than the work, or far longer on a busy machine."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run torch on `count` threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run numpy's and scipy's BLAS on one thread within the block.

    Their OpenBLAS threads wait for each other at every barrier, and eigenvectors of order 2,048 have thousands: 0.8 s
    on one thread, 0.5 s on two idle cores, but up to 22 s on two that other processes use (LOG.md of
    recipes/benchmarks).
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
