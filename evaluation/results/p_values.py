"""Exact p-values of paired tests, and their adjustment for several."""

import itertools
from collections.abc import Sequence

import numpy as np

from sslkit.numerics.paired import ROUNDING


def mcnemar(a: np.ndarray, b: np.ndarray) -> float:
    """Return the two-sided p of McNemar's exact test: the images on which only one is right, against a fair coin.

    a, b: (N,) bool, right or wrong on the same images.
    """
    from scipy.special import bdtr  # scipy.stats takes a second to import

    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    return min(1.0, 2 * float(bdtr(min(only_a, only_b), only_a + only_b, 0.5)))


def sign_flip(difference: np.ndarray) -> float:
    """Return the two-sided p of the exact sign-flip test (Fisher 1935, The Design of Experiments, section 21), at least
    1 / 2^(n - 1).

    difference: (n,) by pair, few, or all equal up to rounding.
    """
    if np.abs(difference).max() < ROUNDING:
        return 1.0
    if np.ptp(difference) < ROUNDING:
        return 0.5 ** (len(difference) - 1)
    flipped = np.array(list(itertools.product((1, -1), repeat=len(difference)))) @ difference
    return float((np.abs(flipped) >= abs(difference.sum()) - ROUNDING).mean())


def holm(p: Sequence[float]) -> np.ndarray:
    """Return (M,) p-values adjusted for M tests (Holm 1979, Scandinavian Journal of Statistics 6:65), in order."""
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
