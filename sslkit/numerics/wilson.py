"""The 95 % interval of a share of n images."""

import numpy as np

Z95 = 1.959963984540054  # quantile of the normal distribution, for 95 %


def wilson(p: float, n: float) -> tuple[float, float]:
    """The 95 % interval of a share p of n (Wilson 1927, JASA 22:209); n may be fractional.

    It holds 95 % on average over shares; 84 % at the worst, where p is so near to 0 or 1 that one image decides.
    """
    low, high = wilson_ends(p, n)
    return float(low), float(high)


def wilson_ends(p: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ends (...,) of `wilson` for shares p (...,) of n (...,)."""
    middle = (p + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * (p * (1 - p) / n + Z95**2 / (4 * n * n)) ** 0.5
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)


def with_interval(share: float, n: int) -> str:
    """A share of n images in percent with its 95 % Wilson interval: "78.8 % ± 1.8", "100.0 % (75.8 to 100.0)".

    The ± stands only for ends that are right to 0.1 % and lie from 0 to 100 %.
    """
    low, high = wilson(share, n)
    half = (high - low) / 2
    is_even = abs((low + high) / 2 - share) < 0.001 and half <= min(share, 1 - share)
    ends = f"± {100 * half:.1f}" if is_even else f"({100 * low:.1f} to {100 * high:.1f})"
    return f"{100 * share:.1f} % {ends}"
