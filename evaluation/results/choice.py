"""Choices and ranks among numbers that are equal but for rounding: the same ones on every processor."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from evaluation.results.statistics import ROUNDING

# Losses are means over rows, of solutions that two processors reach by the same steps: they differ as float32 rounds,
# by some 2^-24 of the loss for each of a few layers, or near 0 as logits of up to 1,000 round in float64.
LOSS_SHARE, LOSS_LEAST = 1e-6, 1e-12
NOTHING = 2.0**-46  # of the largest score: what is left of a score of 0 where numbers of that size cancel


def highest_of(values: Sequence[float]) -> np.ndarray:
    """(n,) places of the highest accuracies and of those that equal it but for rounding; NaN is none."""
    values = np.asarray(values, dtype=float)
    return np.flatnonzero(values >= np.nanmax(values) - ROUNDING)


def lowest_of(losses: Sequence[float]) -> np.ndarray:
    """(n,) places of the lowest losses and of those that equal it but for rounding; NaN is infinite."""
    losses = np.nan_to_num(np.asarray(losses, dtype=float), nan=np.inf, posinf=np.inf)
    least = losses.min()
    return np.flatnonzero(losses <= least + LOSS_SHARE * abs(least) + LOSS_LEAST)


def first_largest(values: Tensor, rounding: Tensor | float) -> Tensor:
    """(N,) for each row of (N, C) the first place whose value is within `rounding` of the row's largest."""
    return (values >= values.amax(1, keepdim=True) - rounding).to(torch.uint8).argmax(1)


def last_least(values: Sequence[float], rounding: Sequence[float]) -> int:
    """The last place whose value may be the least, each being known to a share `rounding` of it."""
    least = min(value * (1 + share) for value, share in zip(values, rounding, strict=True))
    return max(k for k, value in enumerate(values) if value * (1 - rounding[k]) <= least)


def equal_scores(a: float, b: float) -> bool:
    """True for scores that differ by no more than rounding."""
    return abs(a - b) <= ROUNDING * max(abs(a), abs(b))


def levelled(scores: Sequence[float]) -> np.ndarray:
    """(M,) the scores, those that are equal but for rounding all at the lowest of them; nan stays.

    Two that follow each other are equal where they differ by ROUNDING of the larger, far more than sums over images and
    features round, or by NOTHING of the largest of all.
    """
    scores = np.array(scores, dtype=float)
    known = np.flatnonzero(np.isfinite(scores))
    order = known[np.argsort(scores[known], kind="stable")]
    if len(order):
        size = np.abs(scores[order])
        rises = np.diff(scores[order]) > np.maximum(ROUNDING * np.maximum(size[1:], size[:-1]), NOTHING * size.max())
        first = np.maximum.accumulate(np.where(np.append(True, rises), np.arange(len(order)), 0))
        scores[order] = scores[order][first]
    return scores
