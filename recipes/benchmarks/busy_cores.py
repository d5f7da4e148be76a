"""Seconds of the eigenvectors that metrics share, by the threads of BLAS: on idle cores, and beside other processes.

    python recipes/benchmarks/busy_cores.py      (three minutes; writes results/)

Order 2,048, float64, with 100 coordinates; medians of five repeats. The other processes, as many as cores, train
a small network on one thread each.
"""

import os
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from multiprocessing import get_context
from unittest import mock

import numpy as np
import torch
from results import keep
from threadpoolctl import threadpool_limits

from evaluation.transferability import _eigenbasis
from evaluation.transferability._threads import one_blas_thread

RESULTS = "busy_cores"
ORDER, COLUMNS, REPEATS = 2048, 100, 5


def main() -> None:
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.normal(size=(2 * ORDER, ORDER)))
    gram, columns = rows.T @ rows, torch.from_numpy(rng.normal(size=(ORDER, COLUMNS)))
    for others in (0, os.cpu_count()):
        processes = [get_context("spawn").Process(target=work, daemon=True) for _ in range(others)]
        for process in processes:
            process.start()
        time.sleep(10 if others else 0)  # until they compute
        for name, limit in (("one thread", one_blas_thread), ("a thread for each core", each_core)):
            with mock.patch.object(_eigenbasis, "one_blas_thread", limit):
                taken = [seconds(gram, columns) for _ in range(REPEATS)]
            told = {
                "median": round(float(np.median(taken)), 2),
                "min": round(min(taken), 2),
                "max": round(max(taken), 2),
            }
            keep(RESULTS, f"{name}, {others} other processes", told)
            print(f"{name}, {others} other processes: {told}", flush=True)
        for process in processes:
            process.kill()


def each_core() -> threadpool_limits:
    return threadpool_limits(os.cpu_count(), user_api="blas")


def seconds(gram: torch.Tensor, columns: torch.Tensor) -> float:
    start = time.perf_counter()
    _eigenbasis.Tridiagonal.of(gram.clone()).coordinates(columns)
    return time.perf_counter() - start


def work() -> None:
    """Train a small convolutional network until the process is killed."""
    torch.set_num_threads(1)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3))
    x = torch.randn(32, 1, 28, 28)
    while True:
        net(x).square().mean().backward()


if __name__ == "__main__":
    main()
