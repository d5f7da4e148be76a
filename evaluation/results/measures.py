"""The number that a data set is judged by, from the scores of a classifier."""

import numpy as np

from evaluation.results.statistics import Estimate, bootstrap, mean_per_class, share

SHARE = {32: 2.0**-20, 64: 2.0**-40}  # of the largest score, by the bits of a number: see `rounding`
REDRAWN = 1000  # bootstrap draws of 11-point AP, which sorts the images for each class and draw


def measured(scores: np.ndarray, y: np.ndarray, metric: str) -> tuple[Estimate, dict[str, Estimate], np.ndarray | None]:
    """The metric's estimate, others by name, and which of the images are right.

    scores: (N, K). y: (N,) int64 with "top1" or "mean_per_class"; (N, K) of 1, -1, 0 (does not count) with "map11".
    others: top5 where there are more than 5 classes, top1 beside mean_per_class. right: (N,) bool, None for "map11".
    """
    if metric == "map11":
        value = bootstrap(np.arange(len(y)), lambda rows: map11(scores[rows], y[rows]), n=REDRAWN)
        return value, {}, None
    right = top_class(scores) == y
    others = {"top5": share(in_top(scores, y, 5))} if scores.shape[1] > 5 else {}
    if metric == "mean_per_class":
        return mean_per_class(right, y), {"top1": share(right), **others}, right
    return share(right), others, right


def rounding(scores: np.ndarray) -> np.ndarray:
    """(N, 1) by how much two equal scores of a row (N, K) may differ: a small share of the largest.

    A score is a sum of D products, which rounds by some sqrt(D) * 2^-53 of the largest (float32: 2^-24). The share is
    2^-40 (2^-20): hundreds of that (one third) at D = 2,048. More would call different float32 scores equal.
    """
    return SHARE[32 if scores.dtype == np.float32 else 64] * np.abs(scores).max(1, keepdims=True)


def top_class(scores: np.ndarray) -> np.ndarray:
    """(N,) int64 the class of the highest of scores (N, K); of equal ones, but for rounding, the first."""
    return (scores >= scores.max(1, keepdims=True) - rounding(scores)).argmax(1)


def in_top(scores: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """(N,) bool: fewer than k classes score higher than the right one, of equal ones the first counting."""
    own = scores[np.arange(len(y)), y][:, None]
    equal = np.abs(scores - own) <= rounding(scores)
    ahead = ((scores > own) & ~equal) | (equal & (np.arange(scores.shape[1]) < y[:, None]))
    return ahead.sum(1) < k


def map11(scores: np.ndarray, y: np.ndarray) -> float:
    """Mean over classes of the 11-point average precision; a class without a positive image does not count.

    scores: (N, K). y: (N, K) of 1, -1, 0 (does not count).
    """
    counted = [k for k in range(y.shape[1]) if (y[:, k] > 0).any()]
    return float(np.mean([ap11(scores[y[:, k] != 0, k], y[y[:, k] != 0, k] > 0) for k in counted]))


def ap11(scores: np.ndarray, positive: np.ndarray) -> float:
    """Mean over r = 0, 0.1, ..., 1 of the best precision at a recall of at least r (Everingham et al. 2010, eq. 2).

    scores: (n,). positive: (n,) bool, at least one. Equal scores, but for rounding, are retrieved together.
    """
    order = np.argsort(-scores, kind="stable")
    last = np.append(-np.diff(scores[order]) > rounding(scores[None])[0], True)  # of equal scores
    hits = np.cumsum(positive[order])[last]
    precision = hits / (np.flatnonzero(last) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    reached = np.searchsorted(10 * hits, np.arange(11) * hits[-1])  # in whole numbers: 3 * 0.1 is more than 0.3
    return float(best[reached].mean())
