"""Differences of two models on images that come in groups, such as patients, which alone are independent."""

from typing import Any

import numpy as np

from evaluation.results.class_means import never_vary
from evaluation.results.p_values import sign_flip
from evaluation.results.statistics import generator
from sslkit.numerics.paired import ROUNDING, sum_over_groups, t_quantile

EXACT = 14  # groups up to which all 16,384 ways to swap are tried, nearly as many as are drawn for more
FLIPS = 19_999  # draws of the randomisation test: its smallest p is 1 / 20,000


def difference_over_groups(
    differences: np.ndarray, weights: np.ndarray, groups: np.ndarray, seed: int, most: float = 1.0
) -> dict[str, Any]:
    """Return difference, interval, p, test and detectable difference, as of `comparison.Comparison`.

    differences: (N,) of the two models on each image, times its weight. weights: (N,) with a sum of 1. groups: (N,).
    most: that a difference can be; inf for numbers.
    The interval is Student's t with the variance between groups, and one degree of freedom less than groups (Liang &
    Zeger 1986, Biometrika 73:13, with the usual correction for few groups).
    """
    mean, error, count = sum_over_groups(differences, weights, groups)
    quantile = t_quantile(0.975, count - 1)
    ends = max(mean - quantile * error, -most), min(mean + quantile * error, most)
    return {
        "difference": mean,
        "interval": ends if error > ROUNDING else never_vary(mean, count),
        "p": swap_groups(np.bincount(np.unique(groups, return_inverse=True)[1], differences), seed),
        "test": "randomisation over groups",
        "detectable": (quantile + t_quantile(0.8, count - 1)) * error or None,
    }


def swap_groups(sums: np.ndarray, seed: int) -> float:
    """Return the two-sided p of no difference, by swapping the two models' answers in whole groups.

    sums: (G,) the weighted differences of each group. All 2^G ways for up to EXACT groups, else FLIPS random ones.
    """
    if len(sums) <= EXACT:
        return sign_flip(sums)
    signs = generator(seed, "randomisation over groups").choice((-1.0, 1.0), (FLIPS, len(sums)))
    as_large = np.abs(signs @ sums) >= abs(sums.sum()) - ROUNDING
    return float((1 + as_large.sum()) / (1 + FLIPS))
