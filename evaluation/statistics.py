"""An interval on every number, and of what kind it is; paired tests between two results."""

from dataclasses import dataclass

import numpy as np

Z95 = 1.959963984540054


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval.

    value: a fraction between 0 and 1 for accuracies (unit "fraction"), else in its unit.
    interval: (low, high), None where nothing was drawn. kind: what the interval describes, in words
    ("wilson over images", "episodes", "t over seeds", "bootstrap over images"). n: how many were averaged.
    """

    value: float
    interval: tuple[float, float] | None = None
    kind: str = ""
    n: int = 0
    unit: str = "fraction"


def share(right: np.ndarray) -> Estimate:
    """Accuracy with its Wilson interval: what other images of the same kind would have given.

    right: (N,) bool, whether each image was labelled right.
    """
    n = len(right)
    p = float(np.mean(right))
    middle = (p + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * (p * (1 - p) / n + Z95**2 / (4 * n * n)) ** 0.5
    return Estimate(p, (max(middle - half, 0.0), min(middle + half, 1.0)), "wilson over images", n)


def over_episodes(accuracy: np.ndarray) -> Estimate:
    """Mean over episodes with 1.96 standard errors: other episodes of the same pool of images.

    accuracy: (E,) share of right queries in each.
    """
    mean, error = float(np.mean(accuracy)), float(np.std(accuracy, ddof=1)) / len(accuracy) ** 0.5
    return Estimate(mean, (mean - Z95 * error, mean + Z95 * error), "episodes", len(accuracy))
