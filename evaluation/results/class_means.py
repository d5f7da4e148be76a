"""Means over classes of the class means, whose intervals hold where a class has two or three images, too."""

from collections.abc import Sequence

import numpy as np

from evaluation.results.statistics import Estimate, clopper_pearson, over_groups
from sslkit.numerics.paired import t_quantile
from sslkit.numerics.wilson import Z95, effective_rows, wilson, wilson_ends

SMALL = 0.75  # of the harmonic mean of the sizes: classes below it may decide the error, and not be like the others

Interval = tuple[float, float]


def mean_per_class(right: np.ndarray, y: np.ndarray, groups: np.ndarray | None = None) -> Estimate:
    """Return the mean over classes of the class accuracies, with the Wilson interval of as many images as vary alike.

    right: (N,) bool. y: (N,) labels. Classes without an image are left out. groups: see `statistics.share`.
    The mean share p of n images has a variance that p (1 - p) / (n - 1) estimates without bias; n is chosen so that it
    is `variance_over_classes`: the effective sample size (Franco et al. 2019, Journal of Survey Statistics and
    Methodology 7:334). One class has the interval of `share`. The interval is widened by `_with_small_classes`.
    """
    shares, sizes = means_by_class(right, y), np.unique(y, return_counts=True)[1]
    p = float(np.mean(shares))
    n = 1 + p * (1 - p) / variance_over_classes(right, y) if 0 < p < 1 else effective_size(sizes)
    over = over_groups(groups)
    n = n if over is None else min(n, effective_rows(right, groups, class_weights(y)))
    low, high = wilson_ends(shares, sizes)
    interval = _with_small_classes(p, wilson(p, n), shares - low, high - shares, _variances(right, y), sizes)
    return Estimate(p, interval, f"wilson over {over or 'images of each class'}", len(right))


def class_weights(y: np.ndarray) -> np.ndarray:
    """Return the (N,) weights of the rows in the mean over classes of the class means; their sum is 1."""
    _, places, sizes = np.unique(y, return_inverse=True, return_counts=True)
    return 1 / (len(sizes) * sizes[places])


def difference_per_class(difference: np.ndarray, y: np.ndarray) -> tuple[float, Interval]:
    """Return the mean over classes of the mean difference of two models on the images of a class, and its interval.

    difference: (N,) of -1, 0, 1. y: (N,) labels. Student's t, or Clopper-Pearson's where nothing varies, widened by
    `_with_small_classes`.
    """
    sizes = np.unique(y, return_counts=True)[1]
    mean = float(np.mean(means_by_class(difference, y)))
    half = t_quantile(0.975, len(y) - 1) * variance_over_classes(difference, y) ** 0.5
    interval = (mean - half, mean + half) if np.ptp(difference) else never_vary(mean, effective_size(sizes))
    gained, lost = means_by_class(difference > 0, y), means_by_class(difference < 0, y)
    (least, most), (fewest, greatest) = wilson_ends(gained, sizes), wilson_ends(lost, sizes)
    below, above = np.hypot(gained - least, greatest - lost), np.hypot(most - gained, lost - fewest)
    low, high = _with_small_classes(mean, interval, below, above, _variances(difference, y), sizes)
    return mean, (max(low, -1.0), min(high, 1.0))


def never_vary(difference: float, n: float) -> Interval:
    """Return the interval (Clopper-Pearson on n) for a difference that is the same on all images, or 0 on all."""
    share = clopper_pearson(0.0, n)[1]
    return max(difference - share, -1.0), min(difference + share, 1.0)


def means_by_class(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the (C,) means of the values (N,) of each class in y (N,), in order."""
    _, places, sizes = np.unique(y, return_inverse=True, return_counts=True)
    return np.bincount(places, values) / sizes


def variance_over_classes(values: np.ndarray, y: np.ndarray) -> float:
    """Return the variance of the mean of the class means, for other rows of the same classes.

    values: (N,) numbers, two or more. y: (N,) labels.
    Few rows of a class are often equal by chance: of four images, 66 % are all right where 90 % would be. Each class is
    therefore given one row more, distributed as the mean of the classes; the division makes the variance unbiased where
    the classes are alike. Where they differ it is too large, the more the fewer rows they have, except for a class of
    few rows that happen to be equal.
    """
    by_class = _variances(values, y)
    return float(by_class.sum()) / len(by_class) ** 2


def effective_size(sizes: Sequence[int]) -> float:
    """Return the size of a single stratum whose mean has the variance of the mean of these strata's means."""
    return len(sizes) ** 2 / sum(1 / size for size in sizes)


def _variances(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return (C,) variances of the class means, see `variance_over_classes`."""
    n = np.unique(y, return_counts=True)[1]
    moments = (means_by_class(np.asarray(values, float) ** power, y) for power in (1, 2))
    mean, square = ((n * means + means.mean()) / (n + 1) for means in moments)
    of_class, others = (n + 1 / len(n)) ** 2 / n, ((1 / n).sum() - 1 / n) / len(n) ** 2
    share = 1 - (of_class + others) / (n + 1) ** 2  # the expected share of the variance in `square - mean**2`
    return (square - mean**2) / (n * share)


def _with_small_classes(
    value: float, interval: Interval, below: np.ndarray, above: np.ndarray, variances: np.ndarray, sizes: np.ndarray
) -> Interval:
    """Return the interval, widened to what the rows of small classes leave open by themselves.

    below, above: (C,) from each class's mean to the ends of its own interval. variances, sizes: (C,) of its mean.
    The squares of these distances add up (Zou & Donner 2008, Statistics in Medicine 27:1693); for the other classes
    1.96 standard errors. Without it, 500 images of five classes, one of which has 3, hold the value in 75 % where that
    class has 50 % right and the others 95 %.
    """
    small = sizes < SMALL * len(sizes) / (1 / sizes).sum()
    if not small.any():
        return interval
    others = Z95**2 * variances[~small].sum()
    down, up = (float((others + np.square(side[small]).sum()) ** 0.5) / len(sizes) for side in (below, above))
    return min(interval[0], value - down), max(interval[1], value + up)
