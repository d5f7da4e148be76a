"""Chance: reproducible, different for models, seeds and labels, and uniform."""

import numpy as np
import torch

import evaluation

X, Y = np.random.default_rng(0).normal(size=(30, 5)), np.arange(30) % 3


def test_the_same_call_gives_the_same_bits_and_any_change_another() -> None:
    first = evaluation.score("random", X, Y)
    assert evaluation.score("random", torch.from_numpy(X), torch.from_numpy(Y)) == first
    assert evaluation.score("random", X.astype(np.float32).astype(np.float64), Y) == evaluation.score(
        "random", X.astype(np.float32), Y
    )
    other = X.copy()
    other[17, 2] += 1e-9
    changed = [
        evaluation.score("random", X, Y, seed=1),
        evaluation.score("random", other, Y),
        evaluation.score("random", X, Y[::-1].copy()),
        evaluation.score("random", X[:, :4], Y),
        evaluation.score("random", X, Y + 0.5),
    ]
    assert len({first, *changed}) == 6 and all(0 <= value < 1 for value in changed)


def test_seeds_draw_uniformly() -> None:
    from scipy.stats import kstest

    assert kstest([evaluation.score("random", X, Y, seed=seed) for seed in range(300)], "uniform").pvalue > 0.01
