"""Which of several numbers are equal but for rounding, so that it decides neither a choice nor a rank."""

from collections.abc import Sequence

import numpy as np

from evaluation.statistics import ROUNDING

# Losses are means over rows, of solutions that two processors reach by the same steps: they differ as float32 rounds,
# by some 2^-24 of the loss for each of a few layers, or near 0 as logits of up to 1,000 round in float64.
LOSS_SHARE, LOSS_LEAST = 1e-6, 1e-12


def highest_of(values: Sequence[float]) -> np.ndarray:
    """(n,) places of the highest accuracies and of those that equal it but for rounding; NaN is none."""
    values = np.asarray(values, dtype=float)
    return np.flatnonzero(values >= np.nanmax(values) - ROUNDING)


def lowest_of(losses: Sequence[float]) -> np.ndarray:
    """(n,) places of the lowest losses and of those that equal it but for rounding; NaN is infinite."""
    losses = np.nan_to_num(np.asarray(losses, dtype=float), nan=np.inf, posinf=np.inf)
    least = losses.min()
    return np.flatnonzero(losses <= least + LOSS_SHARE * abs(least) + LOSS_LEAST)


def levelled(scores: Sequence[float]) -> np.ndarray:
    """(M,) the scores, those that are equal but for rounding all at the lowest of them; nan stays.

    A score comes of float64 sums over N images and D features, so (N + D) 2^-52 of the largest times what differences
    in it lose: up to ROUNDING of the largest they are equal.
    """
    scores = np.array(scores, dtype=float)
    known = np.flatnonzero(np.isfinite(scores))
    order = known[np.argsort(scores[known], kind="stable")]
    if len(order):
        rises = np.diff(scores[order]) > ROUNDING * np.abs(scores[order]).max()
        first = np.maximum.accumulate(np.where(np.append(True, rises), np.arange(len(order)), 0))
        scores[order] = scores[order][first]
    return scores
