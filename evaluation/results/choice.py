"""Choices and ranks that treat numbers as equal up to rounding, so that every processor gives the same ones."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sslkit.numerics.paired import ROUNDING

# Losses are means over rows. Two processors reach them by the same steps, so they differ by float32 rounding, about
# 2^-24 of the loss for each of a few layers, or near 0 by the float64 rounding of logits up to 1,000.
LOSS_SHARE, LOSS_LEAST = 1e-6, 1e-12
NOTHING = 2.0**-46  # of the largest score: the remainder of a score of 0 when numbers of that size cancel


def highest_of(values: Sequence[float]) -> np.ndarray:
    """Return (n,) indices of the highest accuracies, including those equal up to rounding; NaN is ignored."""
    values = np.asarray(values, dtype=float)
    return np.flatnonzero(values >= np.nanmax(values) - ROUNDING)


def lowest_of(losses: Sequence[float]) -> np.ndarray:
    """Return (n,) indices of the lowest losses, including those equal up to rounding; NaN counts as infinite."""
    losses = np.nan_to_num(np.asarray(losses, dtype=float), nan=np.inf, posinf=np.inf)
    least = losses.min()
    return np.flatnonzero(losses <= least + LOSS_SHARE * abs(least) + LOSS_LEAST)


def first_largest(values: Tensor, rounding: Tensor | float) -> Tensor:
    """Return (N,) for each row of (N, C) the first index whose value is within `rounding` of the row's largest."""
    return (values >= values.amax(1, keepdim=True) - rounding).to(torch.uint8).argmax(1)


def last_least(values: Sequence[float], rounding: Sequence[float]) -> int:
    """Return the last index whose value may be the minimum, with relative errors `rounding`."""
    least = min(value * (1 + share) for value, share in zip(values, rounding, strict=True))
    return max(k for k, value in enumerate(values) if value * (1 - rounding[k]) <= least)


def equal_scores(a: float, b: float) -> bool:
    """Return True for scores that differ by no more than rounding."""
    return abs(a - b) <= ROUNDING * max(abs(a), abs(b))


def level_scores(scores: Sequence[float]) -> np.ndarray:
    """Return the scores (M,) with groups that are equal up to rounding set to their lowest member; nan stays.

    Neighbours in sorted order are equal if they differ by ROUNDING of the larger, far more than the rounding of sums
    over images and features, or by NOTHING of the largest score.
    """
    scores = np.array(scores, dtype=float)
    finite = np.flatnonzero(np.isfinite(scores))
    order = finite[np.argsort(scores[finite], kind="stable")]
    if len(order):
        size = np.abs(scores[order])
        rises = np.diff(scores[order]) > np.maximum(ROUNDING * np.maximum(size[1:], size[:-1]), NOTHING * size.max())
        first = np.maximum.accumulate(np.where(np.append(True, rises), np.arange(len(order)), 0))
        scores[order] = scores[order][first]
    return scores
