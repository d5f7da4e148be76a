"""Speed of 2,000 episodes of 5-way few-shot in batch, against a loop of scikit-learn's logistic regression.

    python recipes/benchmarks/few_shot_speed.py        (some five minutes; writes results/few_shot_speed.json)

Two pools: 40 classes x 100 images of synthetic 512-d features with a fixed random seed, and glyphs of held-out scripts
(531 letters x 20 images) through pretrained efficientnet-lite0 at 64 pixels, 1280-d. One thread. Both sides use the
same l2-normalised features and the same table of episodes; ours also solves ridge and nearest centroid. scikit-learn
at its default tolerance is timed on 200 of the episodes, alternating with ours, and scaled. `agree`: share of those
episodes' query labels equal to scikit-learn's at tolerance 1e-8 (newton-cg).
"""

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from results import keep
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from evaluation.features.extraction import extract
from evaluation.features.models import load_model
from evaluation.features.table import Features, as_features
from evaluation.learners.episode_solvers import solve_episodes
from evaluation.learners.episodes import draw_episodes
from evaluation.protocols.few_shot import few_shot, pool

EPISODES, TIMED, CLASSES, IMAGES, WIDTH = 2000, 200, 40, 100, 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    pools = {"synthetic 512-d": synthetic(), "glyphs, efficientnet-lite0 1280-d": efficientnet()}
    with threadpool_limits(1):
        for name, features in pools.items():
            for k_shot in (5, 1):
                found = compare(features, k_shot, args.repeats)
                keep("few_shot_speed", f"{name}, {k_shot}-shot", found)
                print(f"{name}, {k_shot}-shot", *(f"{key:<44} {value}" for key, value in found.items()), sep="\n  ")


def synthetic() -> Features:
    """Gaussian classes at a distance that gives some 70 % at 5-shot."""
    rng = np.random.default_rng(0)
    means = 0.19 * rng.normal(size=(CLASSES, 1, WIDTH))
    x = means + rng.normal(size=(CLASSES, IMAGES, WIDTH))
    return as_features((x.reshape(-1, WIDTH), np.repeat(np.arange(CLASSES), IMAGES)))


def efficientnet() -> Features:
    return extract(load_model("efficientnet_lite0", image_size=64), "glyphs", "novel_test", cache=None)


def compare(features: Features, k_shot: int, repeats: int) -> dict:
    """Seconds of each contestant for 2,000 episodes, their ratios by turn, and agreement with the optimum."""
    table = draw_episodes(features, k_shot=k_shot, episodes=EPISODES)
    x, rows = pool(features, table.rows(features), "l2")
    given, episodes = features.x / np.linalg.norm(features.x, axis=1, keepdims=True), table.rows(features)[:TIMED]
    contestants = {
        "ours": lambda: solve_episodes(x, rows, k_shot),
        "scikit-learn": lambda: loop(given, episodes, k_shot),
        "whole call of few_shot": lambda: few_shot(features, k_shot=k_shot, episodes=EPISODES),
    }
    cpu, wall = take_turns(contestants, repeats)
    for seconds in (cpu, wall):
        seconds["scikit-learn"] *= EPISODES / TIMED
    return {
        **{f"{name}, cpu s": summary(values) for name, values in cpu.items()},
        "ratio, cpu": summary(cpu["scikit-learn"] / cpu["ours"]),
        "ratio, wall": summary(wall["scikit-learn"] / wall["ours"]),
        **agreement(x, rows, given, episodes, k_shot),
    }


def agreement(x: torch.Tensor, rows: torch.Tensor, given: np.ndarray, episodes: np.ndarray, k_shot: int) -> dict:
    solved = solve_episodes(x, rows, k_shot)
    best = loop(given.astype(np.float64), episodes, k_shot, tol=1e-8)
    way = np.arange(rows.shape[1]).repeat(rows.shape[2] - k_shot)
    return {
        "agree: ours": float((solved.labels["logistic"][:TIMED].numpy() == best).mean()),
        "agree: scikit-learn": float((loop(given, episodes, k_shot) == best).mean()),
        "query labels compared": best.size,
        "converged": bool(solved.converged.all()),
        "steps": solved.steps,
        "accuracy": round(float((solved.labels["logistic"].numpy() == way).mean()), 4),
    }


def loop(x: np.ndarray, episodes: np.ndarray, k_shot: int, tol: float | None = None) -> np.ndarray:
    """(E, queries) labels, one fit per episode; tol: that of newton-cg, None: scikit-learn's defaults."""
    way = np.repeat(np.arange(episodes.shape[1]), k_shot)
    options = {} if tol is None else {"tol": tol, "max_iter": 1000, "solver": "newton-cg"}
    labels = []
    for episode in episodes:
        head = LogisticRegression(C=1.0, **options).fit(x[episode[:, :k_shot].reshape(-1)], way)
        labels.append(head.predict(x[episode[:, k_shot:].reshape(-1)]))
    return np.array(labels)


def take_turns(contestants: dict[str, Callable[[], object]], repeats: int) -> tuple[dict, dict]:
    """CPU and wall seconds of each repeat of each contestant, after one warm-up."""
    times = np.empty((repeats + 1, len(contestants), 2))
    for repeat in times:
        for seconds, once in zip(repeat, contestants.values(), strict=True):
            start = np.array([time.process_time(), time.perf_counter()])
            once()
            seconds[:] = np.array([time.process_time(), time.perf_counter()]) - start
    return tuple(dict(zip(contestants, times[1:, :, kind].T.copy(), strict=True)) for kind in (0, 1))


def summary(values: np.ndarray) -> dict[str, float]:
    return {name: round(float(of(values)), 3) for name, of in (("median", np.median), ("min", np.min), ("max", np.max))}


if __name__ == "__main__":
    main()
