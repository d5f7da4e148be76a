"""The mean difference of two measurements of the same images, with its 95 % interval."""

from dataclasses import asdict, dataclass

import numpy as np

ROUNDING = 1e-9  # accuracies, and ends of an interval, that differ by less are equal


@dataclass(frozen=True)
class Paired:
    """mean: the difference, from -1 to 1. low, high: the ends of its interval. n: images. units: of them, or groups."""

    mean: float
    low: float
    high: float
    n: int
    units: int

    def __str__(self) -> str:
        return f"{100 * self.mean:+.1f} points ({100 * self.low:.1f} to {100 * self.high:.1f})"

    def of_card(self) -> dict[str, float]:
        return asdict(self)


def pair(after: np.ndarray, before: np.ndarray, groups: np.ndarray | None = None) -> Paired | None:
    """Return the mean of after - before, both (N,) from 0 to 1; None for fewer than two images or groups.

    groups: (N,) of images that belong together, such as a patient's; None: each is one.
    The interval is Student's t with the variance between groups, and one degree of freedom less than groups (Liang &
    Zeger 1986, Biometrika 73:13, with the usual correction for few groups); where nothing varies Clopper-Pearson's.
    """
    values, weights = after.astype(float) - before.astype(float), np.full(len(after), 1 / max(1, len(after)))
    mean, error, units = sum_over_groups(
        weights * values, weights, np.arange(len(values)) if groups is None else groups
    )
    if units < 2:
        return None
    half = t_quantile(0.975, units - 1) * error if error > ROUNDING else highest_of_none(units)
    return Paired(mean, max(mean - half, -1.0), min(mean + half, 1.0), len(values), units)


def sum_over_groups(differences: np.ndarray, weights: np.ndarray, groups: np.ndarray) -> tuple[float, float, int]:
    """Return the sum of the differences (N,), its standard error between groups (N,), and how many groups there are.

    differences: of each image, times its weight. weights: (N,) with a sum of 1.
    """
    member = np.unique(groups, return_inverse=True)[1]
    sums, sizes = np.bincount(member, differences), np.bincount(member, weights)
    mean, count = float(sums.sum()), len(sums)
    error = float(np.square(sums - mean * sizes).sum() * count / (count - 1)) ** 0.5
    return mean, error, count


def t_quantile(q: float, free: float) -> float:
    """Return quantile q of Student's t with `free` degrees of freedom."""
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    return float(stdtrit(free, q))


def highest_of_none(n: float) -> float:
    """Return the upper end of Clopper & Pearson's interval of a share of 0 of n: what n equal images leave open."""
    return 1 - 0.025 ** (1 / n)
