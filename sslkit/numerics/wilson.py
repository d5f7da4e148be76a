"""The 95 % interval of a share of n images."""

from collections.abc import Mapping

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


def effective_rows(values: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The number of independent rows whose mean varies as that of these rows, which come in groups; see `wilson`.

    values: (N,) right or wrong. groups: (N,) equal for rows that belong together, of two groups or more. weights: (N,)
    of the rows, with a sum of 1; None: all equal. Where the values do not vary, the number of groups.
    The effective sample size of Korn & Graubard 1998 (Survey Methodology 24:193): p (1 - p) over the variance of the
    mean between the groups, at most N, times the square of the quantile of the normal over that of Student's t with
    one degree of freedom less than groups.
    """
    from scipy.special import stdtrit

    count, member = _members(groups)
    values = np.asarray(values, float)
    weights = np.full(len(values), 1 / len(values)) if weights is None else weights
    p = float(weights @ values)
    between = float(np.square(np.bincount(member, weights * (values - p))).sum()) * count / (count - 1)
    rows = count if not np.ptp(values) else min(p * (1 - p) / between, len(values)) if between else len(values)
    return rows * (Z95 / float(stdtrit(count - 1, 0.975))) ** 2


def _members(groups: np.ndarray) -> tuple[int, np.ndarray]:
    """The number of groups, and that of each row. Raises ValueError for a single group."""
    names, member = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise ValueError("an interval over groups needs two")
    return len(names), member


def independent_rows(groups: np.ndarray) -> int:
    """The number of rows that vary alone if all rows of a group (N,) are alike, in the worst case: N^2 / sum n_g^2."""
    sizes = np.unique(groups, return_counts=True)[1]
    return int(sizes.sum() ** 2 / np.square(sizes).sum())


def units_of(judged: Mapping[str, float]) -> int:
    """The number that intervals of quick accuracies are over, of a card's "before" or "after": images, n, or fewer
    where they come in groups.
    """
    return int(judged.get("units", judged.get("n", 0)))


def with_interval(share: float, n: int) -> str:
    """A share of n images in percent with its 95 % Wilson interval: "78.8 % ± 1.8", "100.0 % (75.8 to 100.0)".

    The ± stands only for ends that are right to 0.1 % and lie from 0 to 100 %.
    """
    low, high = wilson(share, n)
    half = (high - low) / 2
    is_even = abs((low + high) / 2 - share) < 0.001 and half <= min(share, 1 - share)
    ends = f"± {100 * half:.1f}" if is_even else f"({100 * low:.1f} to {100 * high:.1f})"
    return f"{100 * share:.1f} % {ends}"
