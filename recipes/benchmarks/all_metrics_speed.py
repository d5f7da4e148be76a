"""Seconds of every transferability metric on one model: each alone, and all of them together.

    python recipes/benchmarks/all_metrics_speed.py      (four minutes; writes results/)
    python recipes/benchmarks/all_metrics_speed.py --results all_metrics_speed_zen5      (beside another machine)

The features are those of transferability_speed.py, N = 5,000, D = 2,048, C = 100; source probabilities and features of
an untrained network are made up. Two threads; medians of three repeats on samples without a shared sum, after one of a
small sample that loads libraries, with freed memory kept as in recipes/rank.py. Together: one sample, whose sums the
metrics share. The metrics of boxes have no boxes here. Last, what bounds them: the iterations of PACTran and the
seconds of the two float64 products of each, and the seconds of each matrix routine that the seven quick ones call.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from results import keep
from transferability_speed import SIZES, THREADS, TOGETHER, data

import evaluation
from evaluation.learners import lbfgs
from evaluation.ranking.samples import as_sample
from evaluation.ranking.scoring import needs, of_sample, parse
from evaluation.transferability import pactran
from evaluation.transferability._eigenbasis import Tridiagonal
from evaluation.transferability._scatter import add_upper_gram, mirror_upper
from evaluation.transferability.base import BLOCK, Sample
from sslkit.runtime.allocator import keep_freed_memory

RESULTS = "all_metrics_speed"
SIZE = "N=5000 D=2048 C=100"
EVERY = tuple(name for name in evaluation.metrics() if name != "ped" and "boxes" not in needs(name))
REPEATS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", default=RESULTS, help="name of the file in results/")
    name_of_results = parser.parse_args().results
    torch.set_num_threads(THREADS)
    keep_freed_memory()
    made = arrays(SIZE)
    together({"x": made["x"][:300, :32], "y": np.arange(300) % 10}, EVERY)
    for name in (*EVERY, "ped+logme"):
        seconds = [together(made, (name,)) for _ in range(REPEATS)]
        keep(name_of_results, name, summary(seconds))
        print(f"{name:<24} {np.median(seconds):6.2f} s", flush=True)
    for told, names in (("the seven quick ones together", TOGETHER), ("all together", EVERY)):
        seconds = [together(made, names) for _ in range(REPEATS)]
        keep(name_of_results, told, summary(seconds))
        print(f"{told:<32} {np.median(seconds):6.2f} s", flush=True)
    bounds = {"products of pactran": pactran_products(made), "routines of the seven": quick_routines(made)}
    for told, bound in bounds.items():
        keep(name_of_results, told, bound)
        print(f"{told}: {bound}")


def arrays(size: str) -> dict[str, np.ndarray]:
    """Features, labels, source probabilities (N, 50) and features of an untrained network (N, D)."""
    x, y = data(*SIZES[size])
    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet(np.ones(50), len(y))
    return {"x": x, "y": y, "source_probs": probabilities, "untrained": rng.normal(size=x.shape).astype(np.float32)}


def together(made: dict[str, np.ndarray], names: tuple[str, ...]) -> float:
    """Seconds of the metrics on one new sample."""

    def run() -> None:
        sample = sample_of(**made)
        for name in names:
            of_sample(parse(name), sample)

    return clocked(run)


def pactran_products(made: dict[str, np.ndarray]) -> dict[str, float]:
    """Iterations of PACTran, and medians of the seconds of its two products, (N, D) (D, C) and (C, N) (N, D)."""
    found = []

    def kept(*given: object) -> lbfgs.Minimum:
        found.append(lbfgs.minimise(*given))
        return found[-1]

    with mock.patch.object(pactran, "minimise", kept):
        together(made, ("pactran",))
    x = torch.from_numpy(made["x"]).double()
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(made["y"]).long()).double()
    weight = one_hot.T @ x
    taken = {"logits": lambda: x @ weight.T, "gradient": lambda: one_hot.T @ x}
    counts = {"iterations": found[-1].n_iter, "operations of one": 2 * x.numel() * one_hot.shape[1]}
    medians = {f"{name}, s": np.median([clocked(run) for _ in range(20)]) for name, run in taken.items()}
    return counts | {name: round(float(seconds), 4) for name, seconds in medians.items()}


def quick_routines(made: dict[str, np.ndarray]) -> dict[str, float]:
    """Median seconds of each matrix routine, and of all the calls that the seven quick metrics make of them.

    Two sums of X'X (of the rows, and of SFDA's mixed ones), two reductions to tridiagonal form with all eigenvectors of
    it (LogME, and LogME after PED), four Cholesky factors (SFDA's two, TransRate, regularised H-score).
    """
    x = torch.from_numpy(made["x"]).double()
    total = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    blocks = x.split(BLOCK // x.shape[1])

    def gram() -> None:
        total.zero_()
        for rows in blocks:
            add_upper_gram(total, rows)

    gram()
    mirror_upper(total).diagonal().add_(1)
    reduced = Tridiagonal.of(total)
    routines = {
        "X'X": (2, gram),
        "tridiagonal form": (2, lambda: Tridiagonal.of(total)),
        "its eigenvectors": (2, lambda: replace(reduced).small),
        "Cholesky": (4, lambda: torch.linalg.cholesky_ex(total)),
    }
    seconds = {name: float(np.median([clocked(run) for _ in range(5)])) for name, (_, run) in routines.items()}
    together = sum(times * seconds[name] for name, (times, _) in routines.items())
    return {f"{name}, s": round(taken, 4) for name, taken in (seconds | {"all calls": together}).items()}


def clocked(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def sample_of(x: np.ndarray, y: np.ndarray, **further: np.ndarray) -> Sample:
    if not further:
        further = {"source_probs": np.full((len(y), 4), 0.25), "untrained": x[:, ::-1].copy()}
    return as_sample(x, y, reference=(x.mean(0), x.std(0)), model=torch.nn.Linear(2, 2), **further)


def summary(seconds: list[float]) -> dict[str, float]:
    return {name: round(float(of(seconds)), 3) for name, of in (("median", np.median), ("min", min), ("max", max))}


if __name__ == "__main__":
    main()
