"""Seconds of every transferability metric on one model: each alone, and all of them together.

    python recipes/benchmarks/speed/run.py metrics      (four minutes)
    python recipes/benchmarks/speed/run.py metrics --results metrics_zen5      (beside another machine)

Features are synthetic: classes in 64 latent dimensions, noise, a random layer with ReLU; float32, N = 5,000, D = 2,048,
C = 100; source probabilities and features of an untrained network are made up. Two threads; medians of three repeats on
samples without a shared sum, after one of a small sample that loads libraries, with freed memory kept as in
recipes/rank.py. Together: one sample, whose sums the metrics share. The metrics of boxes have no boxes here.
"""

import cli
import numpy as np
import torch
from results import keep
from turns import format_times, summary, take_turns

from sslkit.cli.process import keep_freed_memory

import evaluation
from evaluation.ranking.inputs.samples import as_sample
from evaluation.ranking.scoring import needs, of_sample, parse
from evaluation.transferability.base import Sample

THREADS, REPEATS = 2, 3
N, D, C = 5000, 2048, 100
EVERY = tuple(name for name in evaluation.metrics() if name != "ped" and "boxes" not in needs(name))
QUICK = ("logme", "h_score_regularized", "sfda", "gbc", "etran", "transrate", "ped+logme")


def main() -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("--results", default="metrics", help="name of the file in results/")
    name_of_results = f"speed/{parser.parse_args().results}"
    torch.set_num_threads(THREADS)
    keep_freed_memory()
    made = arrays(N, D, C)
    together(arrays(300, 32, 10), EVERY)
    cases = {name: (name,) for name in (*EVERY, "ped+logme")}
    cases |= {"the seven quick ones together": QUICK, "all together": EVERY}
    for told, names in cases.items():
        times = take_turns({told: lambda names=names: together(made, names)}, REPEATS)
        keep(name_of_results, told, summary(times[told]))
        print(f"{told:<32} {format_times(summary(times[told]))} s", flush=True)


def arrays(n: int, d: int, c: int) -> dict[str, np.ndarray]:
    """Features, labels, source probabilities (n, 50) and features of an untrained network (n, d)."""
    rng, others = np.random.default_rng(0), np.random.default_rng(1)
    y = np.arange(n) % c
    latent = 1.5 * rng.normal(size=(c, 64))[y] + rng.normal(size=(n, 64))
    x = latent @ rng.normal(size=(64, d)) / 8 + 0.5 * rng.normal(size=(n, d))
    made = {"x": np.maximum(x, 0).astype(np.float32), "y": y, "source_probs": others.dirichlet(np.ones(50), n)}
    return {**made, "untrained": others.normal(size=(n, d)).astype(np.float32)}


def together(made: dict[str, np.ndarray], names: tuple[str, ...]) -> None:
    """Compute the metrics on one new sample."""
    sample = sample_of(**made)
    for name in names:
        of_sample(parse(name), sample)


def sample_of(x: np.ndarray, y: np.ndarray, **further: np.ndarray) -> Sample:
    return as_sample(x, y, reference=(x.mean(0), x.std(0)), model=torch.nn.Linear(2, 2), **further)
