"""Rounds of successive halving: models with equal steps on equal images, of which the better half goes on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class Arm:
    """A model in a round, with its learning rates. lrs: those tuned, best first.

    values: (S,) accuracy on the held-out images with the best rate, by seed; without any if every rate diverged.
    right: (S, N) bool, the correct of them; None for several labels per image. groups: (N,) of images that
    belong together, or None. seconds, steps: spent on all rates. beta: inverse temperature with the best rate, by the
    held-out images, its mean over the seeds; None if every rate diverged.
    """

    model: str
    lrs: tuple[float, ...]
    values: np.ndarray
    right: np.ndarray | None
    seconds: float
    steps: int
    groups: np.ndarray | None = None
    beta: float | None = None

    @property
    def by_unit(self) -> np.ndarray:
        """(G,) the share right of each group, or image, less or more as it is smaller or larger: their mean is `value`.

        So the groups vary as independent images do.
        """
        right = self.right.mean(0)
        if self.groups is None:
            return right
        _, member = np.unique(self.groups, return_inverse=True)
        return np.bincount(member, right) * (member.max() + 1) / len(right)

    @property
    def value(self) -> float:
        """Mean accuracy over the seeds; -inf if every rate diverged."""
        return float(self.values.mean()) if len(self.values) else -math.inf


@dataclass(frozen=True, eq=False)
class Round:
    """Models tuned with equal steps on equal images. arms: best first. kept: how many go on. seeds: of each run.

    best: {model: probability that it is the best of all that were tuned}, by this round and those before it; without
        any for several labels per image. regret: {model: accuracy expected to be lost by taking it}, likewise.
    """

    arms: tuple[Arm, ...]
    steps: int
    kept: int
    seeds: tuple[int, ...]
    best: Mapping[str, float] = field(default_factory=dict)
    regret: Mapping[str, float] = field(default_factory=dict)


def count_runs(models: int, rates: int, seeds: int, steps: int) -> tuple[int, int]:
    """Return the runs of all rounds, and their steps, if none ends early. seeds, steps: of the last round."""
    runs = total = 0
    for left in reversed(range(rounds_of(models))):  # rounds after this one
        now = models * rates * (1 if left else seeds)
        runs, total = runs + now, total + now * (steps // 2**left)
        models, rates = (models + 1) // 2, 1 if left == 1 else (rates + 1) // 2
    return runs, total


def rounds_of(models: int) -> int:
    """Return the number of halvings until one model is left."""
    return max(math.ceil(math.log2(models)), 1)
