"""Measures of predicted numbers: the share of the variance that they explain (R2), and their errors in label units."""

from collections.abc import Callable, Mapping

import numpy as np

from evaluation.results.statistics import LEAST, Estimate, generator, interval_of, over_groups
from evaluation.results.tables import with_interval
from sslkit.errors import UserError

R2 = "r2"  # the metric of data sets of numbers
MAE, RMSE = "mean absolute error", "root mean square error"
DRAWS = 2000  # of the bootstrap, as of a mean
LEVEL = 0.9  # of the interval of a prediction: the convention of conformal prediction


def share_of_variance(predicted: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return (N,) by image 1 - error^2 / variance of y, whose mean is R2, as scikit-learn's `r2_score`.

    predicted, y: (N,). Raises UserError for y that do not differ.
    """
    spread = float(np.square(y - y.mean()).mean())
    if spread == 0:
        raise UserError(
            f"the label is {y[0]:g} for all of the {len(y)} test images, so that none of them can be explained"
        )
    return 1 - np.square(y - predicted) / spread


def measure_numbers(
    predicted: np.ndarray, y: np.ndarray, groups: np.ndarray | None = None, unit: str = ""
) -> tuple[Estimate, dict[str, Estimate], np.ndarray]:
    """Return R2, the mean absolute and the root mean square error with 95 % intervals; and `share_of_variance`.

    predicted, y: (N,) in the label's unit. groups: (N,) of images that belong together; None: each stands alone.
    The intervals are the bootstrap's over images, or whole groups, see `statistics.interval_of`. With fewer of these
    than LEAST there is none.
    """
    shares, error = share_of_variance(predicted, y), y - predicted
    over = over_groups(groups)
    member = np.arange(len(y)) if over is None else np.unique(groups, return_inverse=True)[1]
    # the variance is about the mean of all: about that of each draw, none would reach the 0 of a constant prediction
    values = (np.ones(len(y)), np.square(error), np.abs(error), np.square(y - y.mean()))
    sums = np.stack([np.bincount(member, each) for each in values], 1)
    units = len(sums)
    drawn = None
    if units >= LEAST:
        drawn = generator(0, "bootstrap of numbers").multinomial(units, np.full(units, 1 / units), DRAWS) @ sums
    kind = f"bootstrap over {over or 'images'}"
    kind = kind if units >= LEAST else f"no interval, {over or f'{units} images'}: it takes about {LEAST}"

    def estimate(of_sums: Callable[[np.ndarray], np.ndarray], unit: str) -> Estimate:
        interval = None if drawn is None else interval_of(of_sums(drawn), units)
        return Estimate(float(of_sums(sums.sum(0))), interval, kind, len(y), unit)

    errors = {MAE: estimate(_mean_absolute, unit), RMSE: estimate(_root_mean_square, unit)}
    return estimate(_r2, "fraction"), errors, shares


def _r2(sums: np.ndarray) -> np.ndarray:
    """R2 of sums (..., 4) of 1, error^2, |error| and (y - mean)^2."""
    return 1 - sums[..., 1] / sums[..., 3]


def _mean_absolute(sums: np.ndarray) -> np.ndarray:
    return sums[..., 2] / sums[..., 0]


def _root_mean_square(sums: np.ndarray) -> np.ndarray:
    return (sums[..., 1] / sums[..., 0]) ** 0.5


def describe_half(half: float, n: int, groups: np.ndarray | None) -> str:
    """Return the words on `half_width` of n test images."""
    whom = "images of new groups" if over_groups(groups) else "new images"
    told = f"of {100 * LEVEL:.0f} % of {whom} the number is within {half:.4g} of the predicted one"
    return f"{told}: split conformal, by the errors on these {n:,} test images"


def describe_errors(errors: Mapping[str, Estimate]) -> str:
    """Return the errors of `measure_numbers` in words, "" without any."""
    return "; ".join(f"{name} {with_interval(errors[name])}" for name in (MAE, RMSE) if name in errors)


def half_width(error: np.ndarray, groups: np.ndarray | None = None) -> float | None:
    """Return what a number lies within of its prediction in LEVEL of new images, by split conformal prediction (Vovk et
    al. 2005; Lei et al. 2018, JASA 113:1094); None for too few images.

    error: (N,) of images that took no part in training. groups: (N,) of images that belong together: then of an image
    of a new group, each group with the same weight (Lee, Barber & Willett 2023, arXiv 2306.06342).
    """
    member = np.arange(len(error)) if groups is None else np.unique(groups, return_inverse=True)[1]
    sizes = np.bincount(member)
    order = np.argsort(np.abs(error), kind="stable")
    reached = np.cumsum((1 / sizes)[member][order]) / (len(sizes) + 1)
    enough = np.flatnonzero(reached >= LEVEL - 1e-12)
    return float(np.abs(error)[order][enough[0]]) if len(enough) else None
