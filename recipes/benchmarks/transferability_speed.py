"""Speed of each transferability metric against its published computation, and of all together on one model.

    python recipes/benchmarks/transferability_speed.py       (a quarter of an hour; writes results/)
    python recipes/benchmarks/transferability_speed.py --only logme,sfda --repeats 5

Features are synthetic: classes in 64 latent dimensions, noise, a random layer with ReLU; float32, fixed seed. The
published side is a plain implementation of the paper's public code (published_metrics/NAME.py); both use the same
arrays. Two threads; the two sides alternate without caches: metrics share computations only in the row "all".
Memory is the peak beyond the features, in a separate process for each side.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from results import keep

from evaluation.ranking.memory import PeakMemory
from evaluation.ranking.samples import as_sample
from evaluation.ranking.scoring import of_sample, parse
from evaluation.transferability.ped import moves

THREADS = 2
SIZES = {"N=5000 D=2048 C=100": (5000, 2048, 100), "N=2000 D=768 C=37": (2000, 768, 37)}
PUBLISHED = Path(__file__).parent / "published_metrics"
TOGETHER = ("logme", "h_score_regularized", "sfda", "gbc", "etran", "transrate", "ped+logme")
OPTIONS = {"nleep": {"covariance": "diag"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=str, default="")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", nargs=3, metavar=("SIDE", "NAME", "SIZE"), help="measure one, print JSON")
    args = parser.parse_args()
    torch.set_num_threads(THREADS)
    if args.memory:
        print(json.dumps(memory(*args.memory)))
        return
    names = [name for name in args.only.split(",") if name] or [*published_names(), "ped+logme", "all"]
    for size in SIZES:
        x, y = data(*SIZES[size])
        for name in names:
            found = compare(name, size, x, y, args.repeats)
            keep("transferability_speed", f"{name}, {size}", found)
            print(f"{name}, {size}", *(f"{key:<32} {value}" for key, value in found.items()), sep="\n  ", flush=True)


def published_names() -> list[str]:
    return sorted(path.stem for path in PUBLISHED.glob("*.py") if not path.stem.startswith("_"))


def data(n: int, d: int, c: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % c
    latent = 1.5 * rng.normal(size=(c, 64))[y] + rng.normal(size=(n, 64))
    x = latent @ rng.normal(size=(64, d)) / 8 + 0.5 * rng.normal(size=(n, d))
    return np.maximum(x, 0).astype(np.float32), y


def compare(name: str, size: str, x: np.ndarray, y: np.ndarray, repeats: int) -> dict:
    """Seconds of both sides by turn, their ratio, and each side's memory."""
    sides = {side: once for side in ("ours", "published") if (once := contestant(side, name, x, y)) is not None}
    slow = name == "nleep"
    for side in sides if slow else ():
        contestant(side, name, *data(300, 32, 10))()  # loads libraries
    times = take_turns(sides, 1 if slow else repeats, warm_up=not slow)
    found: dict = {f"{side}, s": summary(values) for side, values in times.items()}
    if len(times) == 2:
        found["ratio"] = summary(times["published"] / times["ours"])
    return found | {f"{side}, MB": apart(side, name, size) for side in sides if not slow}


def contestant(side: str, name: str, x: np.ndarray, y: np.ndarray) -> Callable[[], object] | None:
    if side == "ours" and name == "ped":  # only the iterations, up to the moved features
        return lambda: moves(as_sample(x, y, reference=(x.mean(0), x.std(0))))[0].features
    if side == "ours":
        names = TOGETHER if name == "all" else (name,)
        return lambda: ours(names, x, y)
    if name == "all":
        return None
    return published(name, x, y)


def ours(names: tuple[str, ...], x: np.ndarray, y: np.ndarray) -> list[float]:
    sample = as_sample(x, y, reference=(x.mean(0), x.std(0)))
    found = []
    for name in names:
        result = of_sample(parse(name, OPTIONS.get(name)), sample)
        found.append(result.score)
    return found


def published(name: str, x: np.ndarray, y: np.ndarray) -> Callable[[], object]:
    """The published side; for `ped+logme` PED's iterations, then LogME."""
    if name == "ped":
        return lambda: moved(x, y)
    if name == "ped+logme":
        logme = importlib.import_module("published_metrics.logme").published
        return lambda: logme(moved(x, y), y)
    function = importlib.import_module(f"published_metrics.{name}").published
    return lambda: function(x, y)


def moved(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    found = importlib.import_module("published_metrics.ped").published(x, y, x.mean(0), x.std(0))
    return found[0] if isinstance(found, tuple) else found


def take_turns(contestants: dict[str, Callable[[], object]], repeats: int, warm_up: bool) -> dict[str, np.ndarray]:
    times = np.empty((repeats + warm_up, len(contestants)))
    for row in times:
        for k, once in enumerate(contestants.values()):
            start = time.perf_counter()
            once()
            row[k] = time.perf_counter() - start
    return dict(zip(contestants, times[int(warm_up) :].T.copy(), strict=True))


def memory(side: str, name: str, size: str) -> int:
    """Peak megabytes beyond the features; run in a separate process."""
    x, y = data(*SIZES[size])
    small = data(300, 32, 10)
    contestant(side, name, *small)()  # loads libraries and starts threads
    once = contestant(side, name, x, y)
    with PeakMemory() as peak:
        once()
    return round(peak.peak / 1e6)


def apart(side: str, name: str, size: str) -> int:
    call = [sys.executable, __file__, "--memory", side, name, size]
    return json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)


def summary(values: np.ndarray) -> dict[str, float]:
    return {name: round(float(of(values)), 3) for name, of in (("median", np.median), ("min", np.min), ("max", np.max))}


if __name__ == "__main__":
    main()
