"""Metrics of the data sets, computed from the scores of a classifier."""

from collections.abc import Callable

import numpy as np

from evaluation.results.class_means import mean_per_class
from evaluation.results.numbers import R2, measure_numbers, share_of_variance
from evaluation.results.statistics import Estimate, bias_corrected, generator, share
from sslkit.errors import UserError
from sslkit.numerics.ties import rounding, top_class

# Positive, and negative, images of a class for an interval of average precision. In 205 and 219 simulated data sets
# with so many, of two to six classes, intervals held 93 % (map) and 92 % (map11) of the values on unlimited images.
FEWEST = 20
SHUFFLED = 20  # random orders whose mean is the average precision of chance: a round number


def measure(
    scores: np.ndarray, y: np.ndarray, metric: str, groups: np.ndarray | None = None, unit: str = ""
) -> tuple[Estimate, dict[str, Estimate], np.ndarray | None]:
    """Return the metric's estimate, further estimates by name, and the correctness of each image.

    scores: (N, K). y: (N,) int64 with "top1" or "mean_per_class"; (N, K) of 1, -1, 0 (does not count) with "map11";
    (N,) numbers with "r2", whose scores (N, 1) are numbers, too: see `measure_numbers`. unit: of these.
    groups: (N,) of images that belong together, over which the intervals are; None: each image stands alone.
    Further: top5 for more than 5 classes, top1 beside mean_per_class, map (of `average_precision`) beside map11.
    Correctness: (N,) bool, None for "map11"; of numbers (N,) float64, the share that is explained.
    """
    if metric == R2:
        return measure_numbers(scores[:, 0].astype(np.float64), y, groups, unit)
    if metric == "map11":
        if not (y > 0).any():
            raise UserError("no test image has a class, so that there is no average precision")
        beside = {"map": _precision(scores, y, average_precision, groups)}
        return _precision(scores, y, ap11, groups), beside, None
    right = top_class(scores) == y
    others = {"top5": share(in_top(scores, y, 5), groups)} if scores.shape[1] > 5 else {}
    if metric == "mean_per_class":
        return mean_per_class(right, y, groups), {"top1": share(right, groups), **others}, right
    return share(right, groups), others, right


def right_by_largest(y: np.ndarray) -> np.ndarray:
    """Return (N,) bool: whether always answering the largest class, the first of equal ones, is right of y (N,)."""
    return y == np.bincount(y[y >= 0]).argmax()


def right_by_constant(y: np.ndarray, learned: np.ndarray) -> np.ndarray:
    """Return (N,) what always giving one answer is worth of each y: the largest class, or the mean of numbers.

    learned: labels of the training images, whose mean it is.
    """
    return share_of_variance(np.full(len(y), learned.mean()), y) if y.dtype.kind == "f" else right_by_largest(y)


def in_top(scores: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Return (N,) bool: fewer than k classes rank before the right one; the first of equal scores ranks first."""
    right = scores[np.arange(len(y)), y][:, None]
    equal = np.abs(scores - right) <= rounding(scores)
    ahead = ((scores > right) & ~equal) | (equal & (np.arange(scores.shape[1]) < y[:, None]))
    return ahead.sum(1) < k


def _precision(
    scores: np.ndarray,
    y: np.ndarray,
    of_class: Callable[[np.ndarray, np.ndarray], float],
    groups: np.ndarray | None,
) -> Estimate:
    """Return a mean average precision with its interval over images, or groups."""
    counted = (y > 0).any(0)
    members = np.concatenate([(y > 0)[:, counted], (y < 0)[:, counted]], 1)
    rows = np.arange(len(y))
    return bias_corrected(
        rows, lambda drawn: mean_ap(scores[drawn], y[drawn], of_class), members, fewest=FEWEST, groups=groups
    )


def chance(y: np.ndarray) -> dict[str, float]:
    """Return map11 and map of random scores for labels (N, K) of 1, -1, 0: what a network that knows nothing has."""
    rng = generator(0, "chance of average precision")
    drawn = [rng.random(y.shape) for _ in range(SHUFFLED)]
    kinds = {"map11": ap11, "map": average_precision}
    return {
        name: float(np.mean([mean_ap(scores, y, of_class) for scores in drawn])) for name, of_class in kinds.items()
    }


def map11(scores: np.ndarray, y: np.ndarray) -> float:
    """Return the mean over classes of the 11-point average precision; see `mean_ap`."""
    return mean_ap(scores, y, ap11)


def mean_ap(scores: np.ndarray, y: np.ndarray, of_class: Callable[[np.ndarray, np.ndarray], float]) -> float:
    """Return the mean of a class's average precision, without classes that have no positive image.

    scores: (N, K). y: (N, K) of 1, -1, 0 (does not count). nan if no class has one.
    """
    counted = [k for k in range(y.shape[1]) if (y[:, k] > 0).any()]
    if not counted:
        return float("nan")
    return float(np.mean([of_class(scores[y[:, k] != 0, k], y[y[:, k] != 0, k] > 0) for k in counted]))


def average_precision(scores: np.ndarray, positive: np.ndarray) -> float:
    """Return the area under the steps of the precision-recall curve, as scikit-learn's `average_precision_score`.

    scores: (n,). positive: (n,) bool, at least one. Scores that are equal up to rounding are retrieved together.
    """
    hits, precision = _curve(scores, positive)
    return float(np.diff(hits, prepend=0) @ precision / hits[-1])


def ap11(scores: np.ndarray, positive: np.ndarray) -> float:
    """Return the mean over r = 0, 0.1, ..., 1 of the best precision at recall >= r (Everingham et al. 2010, eq. 2).

    scores: (n,). positive: (n,) bool, at least one. Scores that are equal up to rounding are retrieved together.
    """
    hits, precision = _curve(scores, positive)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    reached = np.searchsorted(10 * hits, np.arange(11) * hits[-1])  # in whole numbers: 3 * 0.1 is more than 0.3
    return float(best[reached].mean())


def _curve(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positives retrieved, and the precision, after each group of equal scores, from the highest."""
    order = np.argsort(-scores, kind="stable")
    last = np.append(-np.diff(scores[order]) > rounding(scores[None])[0], True)  # of equal scores
    hits = np.cumsum(positive[order])[last]
    return hits, hits / (np.flatnonzero(last) + 1)
