"""Choices between computed values that are equal but for rounding: the same ones on every processor."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

SCORES = 1e-9  # of a score: models whose scores differ by less, relative to the larger, are equal


def first_largest(values: Tensor, rounding: Tensor | float) -> Tensor:
    """(N,) for each row of (N, C) the first place whose value is within `rounding` of the row's largest."""
    return (values >= values.amax(1, keepdim=True) - rounding).to(torch.uint8).argmax(1)


def last_least(values: Sequence[float], rounding: Sequence[float]) -> int:
    """The last place whose value may be the least, each being known to a share `rounding` of it."""
    least = min(value * (1 + share) for value, share in zip(values, rounding, strict=True))
    return max(k for k, value in enumerate(values) if value * (1 - rounding[k]) <= least)


def grouped(scores: np.ndarray) -> np.ndarray:
    """(M,) scores without nan, those that are equal but for rounding all replaced by the least of them."""
    order = np.argsort(scores)
    rising = scores[order]
    parted = np.diff(rising) > SCORES * np.maximum(np.abs(rising[1:]), np.abs(rising[:-1]))
    first = np.maximum.accumulate(np.where(np.concatenate([[True], parted]), np.arange(len(scores)), 0))
    found = np.empty_like(scores)
    found[order] = rising[first]
    return found


def equal_scores(a: float, b: float) -> bool:
    """True for scores that differ by no more than rounding."""
    return abs(a - b) <= SCORES * max(abs(a), abs(b))
