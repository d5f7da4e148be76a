"""The training, selection and test rows of a linear probe."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.datasets._copies import units
from evaluation.features.table import Features
from evaluation.learners.linear_heads import accuracy, mean_of
from evaluation.results.measures import map11
from sslkit.data.held_out import held_out
from sslkit.errors import UserError
from sslkit.numerics.ties import top_class


@dataclass(frozen=True)
class Part:
    """Rows of features x: (N, D), memory-mapped or not: n rows in the order of their names, and their labels.

    y: (n,) int64 indices of the classes in train, or (n, K) of 1, -1, 0 (does not count).
    """

    x: np.ndarray
    rows: np.ndarray
    y: np.ndarray

    def value(self, scores: np.ndarray, metric: str) -> float:
        """Return the metric of these scores (n, K)."""
        return map11(scores, self.y) if metric == "map11" else accuracy(top_class(scores), self.y, metric)

    def loss(self, scores: np.ndarray, metric: str) -> float:
        """Return the mean cross-entropy of scores (n, K), first by class for mean_per_class, binary for multi-label."""
        if self.y.ndim == 2:
            counts = self.y != 0
            return float(np.logaddexp(0, -self.y[counts] * scores[counts].astype(np.float64)).mean())
        scores = scores.astype(np.float64)
        losses = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(scores)), self.y]
        return mean_of(losses, self.y, metric)

    def and_also(self, other: "Part") -> "Part":
        """Return both parts together, in memory."""
        x = np.concatenate([self.x[self.rows], other.x[other.rows]])
        return Part(x, np.arange(len(x)), np.concatenate([self.y, other.y]))


@dataclass(frozen=True)
class Parts:
    """learn: training rows during selection. judge: selection rows. full: final training rows.

    labels: the classes of train that occur, by their numbers. metric: of the test set. chosen_by: the name of `judge`.
    """

    learn: Part
    judge: Part
    full: Part
    test: Part
    labels: Sequence[int]
    metric: str
    chosen_by: str

    @property
    def classes(self) -> int:
        """The number of classes that occur."""
        return len(self.labels)


def parts_of(
    train: Features, val: Features | None, test: Features, *, share: float, seed: int, select: str, choose: bool
) -> Parts:
    """Split the rows. The labels of val and test are numbered as in train, see `evaluation.features.match_labels`.

    share: of each class of train, held out if there is no val. select: "held_out" or "test".
    choose: True if there is more than one setting.
    Raises UserError for fewer than two classes, and if no class has two images (or groups) to split.
    """
    labels, numbers = _numbers(train)
    whole, tested = _part(train, numbers), _part(test, numbers)
    about = {"test": tested, "labels": labels, "metric": test.metric}
    full = whole if val is None else whole.and_also(_part(val, numbers))
    if not choose or select == "test":
        return Parts(full, tested, full, chosen_by="test" if choose else "given", **about)
    if val is not None:
        return Parts(whole, _part(val, numbers), full, chosen_by="val", **about)
    mask = _held_out(train, share, seed)
    return Parts(_part(train, numbers, ~mask), _part(train, numbers, mask), full, chosen_by="held-out train", **about)


def _numbers(train: Features) -> tuple[Sequence[int], np.ndarray | None]:
    """Return the classes that occur in train, by their numbers, and the index of each label among them."""
    if train.y.ndim == 2:
        return range(train.y.shape[1]), None
    present = np.unique(train.y)
    if len(present) < 2:
        raise UserError(f"a classifier needs two classes, train has images of {train.classes[present[0]]} only")
    return present.tolist(), np.searchsorted(present, np.arange(present[-1] + 1))


def _part(features: Features, numbers: np.ndarray | None, mask: np.ndarray | None = None) -> Part:
    rows = np.argsort(features.ids, kind="stable")
    rows = rows if mask is None else rows[mask[rows]]
    y = features.y[rows]
    return Part(features.x, rows, y if numbers is None else numbers[y])


def _held_out(train: Features, share: float, seed: int) -> np.ndarray:
    """Return the held-out mask (N,) bool; images of one group, and copies of one image, stay together."""
    names, first, member = units(train.ids, train.images, train.groups)
    mask = held_out(train.y[first], names.tolist(), share, seed=seed)[member]
    if not mask.any():
        raise UserError(
            f"train has {len(names)} images (or groups), one of each class: none can be held out for selection; "
            "give val, or the strength c"
        )
    return mask
