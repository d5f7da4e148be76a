"""Intervals for every number, with their kind. `evaluation.comparison` tests one result against another."""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sslkit.errors import UserError

Z95 = 1.959963984540054
ROUNDING = 1e-9  # accuracies, and ends of an interval, that differ by less are equal
CELLS = 2**22  # resampling counts in memory at once


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval.

    value: a fraction between 0 and 1 for accuracies (unit "fraction"), else in its unit.
    interval: (low, high), or None. kind: of the interval, in words ("wilson over images", "episodes",
    "t over 5 seeds", "bootstrap over images"). n: how many were averaged.
    """

    value: float
    interval: tuple[float, float] | None = None
    kind: str = ""
    n: int = 0
    unit: str = "fraction"


def share(right: np.ndarray) -> Estimate:
    """Return the accuracy with its Wilson interval, for other images of the same kind.

    right: (N,) bool, True for a correct label.
    """
    n = len(right)
    p = float(np.mean(right))
    middle = (p + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * (p * (1 - p) / n + Z95**2 / (4 * n * n)) ** 0.5
    return Estimate(p, (max(middle - half, 0.0), min(middle + half, 1.0)), "wilson over images", n)


def over_episodes(accuracy: np.ndarray) -> Estimate:
    """Return the mean over episodes with 1.96 standard errors, for other episodes of the same pool of images.

    accuracy: (E,) share of correct queries of each episode.
    """
    n, mean = len(accuracy), float(np.mean(accuracy))
    half = Z95 * float(np.std(accuracy, ddof=1)) / n**0.5
    return _with_room(Estimate(mean, _within((mean - half, mean + half), accuracy), "episodes", n), n)


def over_seeds(values: Sequence[float], *, unit: str = "fraction") -> Estimate:
    """Return the mean over seeds with Student's t interval (ddof = 1), for other seeds on the same images.

    values: (S,) one number per seed; a single value has no interval.
    Raises UserError for an empty sequence or a value that is not finite.
    """
    values = _vector(values, "values")
    n, mean = len(values), float(np.mean(values))
    if n == 1:
        return Estimate(mean, None, "one seed", 1, unit)
    half = t_quantile(0.975, n - 1) * float(np.std(values, ddof=1)) / n**0.5
    interval = (mean - half, mean + half)
    return Estimate(mean, _within(interval, values) if unit == "fraction" else interval, f"t over {n} seeds", n, unit)


def mean_per_class(right: np.ndarray, y: np.ndarray, *, n: int = 2000, seed: int = 0) -> Estimate:
    """Return the mean over classes of the class accuracies, with a bootstrap within each class.

    right: (N,) bool. y: (N,) labels. Classes without an image are left out.
    The bootstrap underestimates the variance of classes with one or two images: `kind` then contains a warning, and
    there is no interval if no class has two images.
    """
    sizes = np.unique(y, return_counts=True)[1]
    if sizes.max() == 1:
        return Estimate(float(np.mean(right)), None, "no interval: one image of each class", len(sizes))
    few = int((sizes < 3).sum())
    note = f", too narrow: {few} of them have fewer than 3" if few else ""
    return bootstrap_mean(right, strata=y, n=n, seed=seed, kind=f"bootstrap over images of each class{note}")


def bootstrap_mean(
    values: np.ndarray,
    *,
    strata: np.ndarray | None = None,
    n: int = 2000,
    seed: int = 0,
    kind: str = "bootstrap over images",
    unit: str = "fraction",
) -> Estimate:
    """Return the mean, or the mean of the stratum means, with its bootstrap interval; see `bootstrap`.

    values: (N,) numbers. strata: (N,) labels; each stratum is resampled separately and has the same weight.
    The order of the rows does not matter. If few values are distinct (right or wrong), their counts are drawn instead,
    which is equivalent and costs the same for any N.
    """
    values = _vector(values, "values")
    strata = np.zeros(len(values), np.int64) if strata is None else _strata(strata, len(values))
    groups = [values[strata == label] for label in np.unique(strata)]
    rng = generator(seed, "bootstrap")
    drawn = np.mean([_resampled_means(group, n, rng) for group in groups], axis=0)
    mean = float(np.mean([np.mean(group) for group in groups]))
    sizes = [len(group) for group in groups]
    return _with_room(Estimate(mean, interval_of(drawn, sizes), kind, len(values), unit), effective_size(sizes))


def bootstrap(
    rows: np.ndarray,
    statistic: Callable[[np.ndarray], float],
    *,
    strata: np.ndarray | None = None,
    n: int = 2000,
    seed: int = 0,
    kind: str = "bootstrap over images",
    unit: str = "fraction",
) -> Estimate:
    """Return any statistic with its bootstrap interval: the rows are resampled n times, with replacement.

    rows: (N, ...); for several arrays give np.arange(N), and index them in the statistic.
    statistic: (N, ...) rows -> number or NaN. strata: (N,) labels, each stratum is resampled separately.
    The interval is the expanded percentile interval (Hesterberg 2015, The American Statistician 69:371, section 5.3):
    percentiles, widened to correct for few rows. Measured over 1,500 data sets of 8 normal rows, 94 % of the means'
    intervals contain the true mean, and 89 % with plain percentiles. BCa would need N more calls of the statistic.
    The draws alone move its ends by 3 % of its half width at n = 2000. Draws whose statistic is NaN are left out.
    Raises UserError for fewer than two rows, and if every draw is NaN.
    """
    rows = np.asarray(rows)
    strata = np.zeros(len(rows), np.int64) if strata is None else _strata(strata, len(rows))
    members = [np.flatnonzero(strata == label) for label in np.unique(strata)]
    rng = generator(seed, "bootstrap")
    draws = (
        np.concatenate([member[rng.integers(len(member), size=len(member))] for member in members]) for _ in range(n)
    )
    drawn = np.array([statistic(rows[chosen]) for chosen in draws], dtype=float)
    drawn = drawn[~np.isnan(drawn)]
    if not len(drawn):
        raise UserError(f"no interval: the statistic of {len(rows)} rows is NaN in each of {n} draws")
    sizes = [len(member) for member in members]
    estimate = Estimate(float(statistic(rows)), interval_of(drawn, sizes), kind, len(rows), unit)
    return _with_room(estimate, effective_size(sizes))


def interval_of(drawn: np.ndarray, sizes: Sequence[int]) -> tuple[float, float]:
    """Return the expanded percentile interval of bootstrap values.

    drawn: (n,) the statistic of each draw. sizes: number of rows drawn, for each stratum.
    With n rows the bootstrap's variance is (n - 1) / n of the true one, and the mean has a t distribution with n - 1
    degrees of freedom. For strata, a mean of means of equal variance is assumed (Welch-Satterthwaite).
    """
    from scipy.special import ndtr

    sizes = np.asarray(sizes, dtype=float)
    more = sizes[sizes > 1]
    if not len(more):
        raise UserError("a bootstrap interval needs at least two rows in a stratum, these have one each")
    widen = ((1 / sizes).sum() / ((more - 1) / more**2).sum()) ** 0.5
    free = (1 / more).sum() ** 2 / (1 / (more**2 * (more - 1))).sum()
    tail = float(ndtr(-widen * t_quantile(0.975, free)))
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def jackknife(value: float, without: Sequence[float], *, kind: str, n: int, unit: str) -> Estimate:
    """Return the delete-a-block jackknife interval (Efron & Tibshirani 1993, chapter 11), by Student's t of G - 1.

    value: of all rows. without: (G,) the statistic without each of G blocks of about the same size.
    For statistics that the bootstrap's repeated rows would bias, such as ranks.
    """
    without = _vector(without, "without")
    blocks = len(without)
    error = ((blocks - 1) / blocks * np.square(without - without.mean()).sum()) ** 0.5
    half = t_quantile(0.975, blocks - 1) * float(error)
    return Estimate(value, (value - half, value + half), kind, n, unit)


def clopper_pearson(p: float, n: float) -> tuple[float, float]:
    """Return the 95 % interval of a share p of n (Clopper & Pearson 1934, Biometrika 26:404); n p may be fractional."""
    from scipy.special import betaincinv

    low = float(betaincinv(n * p, n - n * p + 1, 0.025)) if p > 0 else 0.0
    high = float(betaincinv(n * p + 1, n - n * p, 0.975)) if p < 1 else 1.0
    return low, high


def mcnemar(a: np.ndarray, b: np.ndarray) -> float:
    """Return the two-sided p of McNemar's exact test: the images on which only one is right, against a fair coin.

    a, b: (N,) bool, right or wrong on the same images.
    """
    from scipy.stats import binomtest

    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    return float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


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


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Return the random generator of one purpose, independent of other purposes and of numpy's global generator."""
    return np.random.default_rng(int.from_bytes(hashlib.sha256(f"{purpose} {seed}".encode()).digest()[:16], "little"))


def t_quantile(q: float, free: float) -> float:
    """Return quantile q of Student's t with `free` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(free, q))


def _with_room(estimate: Estimate, n: float) -> Estimate:
    """Return the estimate; a fraction whose draws were all the same gets the interval of a share of n."""
    low, high = estimate.interval
    if estimate.unit != "fraction" or not 0 <= estimate.value <= 1 or high - low > ROUNDING:
        return estimate
    kind = f"{estimate.kind}, none of which varies: Clopper-Pearson on {n:.3g}"
    return replace(estimate, interval=clopper_pearson(estimate.value, n), kind=kind)


def _within(interval: tuple[float, float], values: np.ndarray) -> tuple[float, float]:
    """Clip an interval to [0, 1] if all values are in [0, 1]; differences may be negative and stay."""
    low, high = interval
    return (max(low, 0.0), min(high, 1.0)) if np.min(values) >= 0 and np.max(values) <= 1 else interval


def effective_size(sizes: Sequence[int]) -> float:
    """Return the size of a single stratum whose mean has the variance of the mean of these strata's means."""
    return len(sizes) ** 2 / sum(1 / size for size in sizes)


def _resampled_means(values: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return (n,) means of bootstrap draws of the values."""
    size = len(values)
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) * 16 > size:  # drawing rows is faster than drawing the count of each value
        ordered = np.sort(values)
        blocks = _blocks(n, max(1, CELLS // size))
        return np.concatenate([ordered[rng.integers(size, size=(some, size))].mean(1) for some in blocks])
    blocks = _blocks(n, max(1, CELLS // len(distinct)))
    return np.concatenate([rng.multinomial(size, counts / size, some) @ distinct for some in blocks]) / size


def _blocks(total: int, size: int) -> Iterator[int]:
    for start in range(0, total, size):
        yield min(size, total - start)


def _vector(values: Sequence[float], where: str) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not len(values):
        raise UserError(f"{where} must be (N,) numbers with at least one, not of shape {values.shape}")
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise UserError(f"{where} must be finite; number {row} is {values[row]}")
    return values


def _strata(strata: np.ndarray, n: int) -> np.ndarray:
    strata = np.asarray(strata)
    if strata.shape != (n,):
        raise UserError(f"strata must be ({n},) labels, one a row, not of shape {strata.shape}")
    return strata
