"""Detectable differences: the smallest ones that a paired test finds in 80 % of samples, at p < 0.05."""

import numpy as np

from evaluation.results.class_means import variance_over_classes
from sslkit.numerics.paired import t_quantile
from sslkit.numerics.wilson import Z95

Z80 = 0.8416212335729143  # quantile of the normal distribution: a power of 80 %, the convention


def detectable_share(discordant: float, n: int) -> float | None:
    """Return the smallest difference of two shares that McNemar's test detects with power 80 % at level 5 %.

    discordant: the share of images on which exactly one of the two is right; a larger solution d is itself used as the
        discordance. n: images.
    Solves sqrt(n) d = z(0.975) sqrt(psi) + z(0.8) sqrt(psi - d^2) (Connor 1987, Biometrics 43:207).
    """
    from scipy.optimize import brentq

    def excess(d: float) -> float:
        psi = max(discordant, d)
        return n**0.5 * d - Z95 * psi**0.5 - Z80 * (psi - d * d) ** 0.5

    return float(brentq(excess, 1e-12, 1.0)) if excess(1.0) > 0 else None


def detectable_mean(difference: np.ndarray) -> float | None:
    """Return the smallest mean that the t test detects with power 80 % at level 5 %: (t(0.975) + t(0.8)) SE.

    difference: (n,) by pair. Source: Bloom 1995, Evaluation Review 19:547.
    """
    free, error = len(difference) - 1, float(np.std(difference, ddof=1)) / len(difference) ** 0.5
    return (t_quantile(0.975, free) + t_quantile(0.8, free)) * error or None


def detectable_classes(difference: np.ndarray, y: np.ndarray) -> float | None:
    """Like `detectable_mean`, with the standard error of a mean of class means; None if nothing differs."""
    return (Z95 + Z80) * variance_over_classes(difference, y) ** 0.5 or None
