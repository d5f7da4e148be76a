"""Which rows a linear probe learns from, which it chooses by, and which it is tested on."""

from dataclasses import dataclass

import numpy as np

from evaluation.datasets._splits import held_out
from evaluation.features.table import Features
from evaluation.learners.linear_heads import accuracy
from evaluation.results.measures import map11, top_class
from sslkit.errors import UserError

SAME = 2.0**-16  # of a row's length: features of one image in two batches differ by less


@dataclass(frozen=True)
class Part:
    """Rows of features x: (N, D), memory-mapped or not: n rows in the order of their names, and their labels.

    y: (n,) int64 numbers of the classes that train has, or (n, K) of 1, -1, 0 (does not count).
    """

    x: np.ndarray
    rows: np.ndarray
    y: np.ndarray

    def value(self, scores: np.ndarray, metric: str) -> float:
        """What these scores (n, K) are worth."""
        return map11(scores, self.y) if metric == "map11" else accuracy(top_class(scores), self.y, metric)

    def loss(self, scores: np.ndarray, metric: str) -> float:
        """Mean cross-entropy of these scores (n, K), by class first for mean_per_class, binary for several labels."""
        if self.y.ndim == 2:
            counts = self.y != 0
            return float(np.logaddexp(0, -self.y[counts] * scores[counts].astype(np.float64)).mean())
        scores = scores.astype(np.float64)
        losses = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(scores)), self.y]
        if metric != "mean_per_class":
            return float(losses.mean())
        counts = np.bincount(self.y)
        return float((np.bincount(self.y, weights=losses)[counts > 0] / counts[counts > 0]).mean())

    def and_also(self, other: "Part") -> "Part":
        """Both, in memory."""
        x = np.concatenate([self.x[self.rows], other.x[other.rows]])
        return Part(x, np.arange(len(x)), np.concatenate([self.y, other.y]))


@dataclass(frozen=True)
class Parts:
    """learn: what to learn from while choosing. judge: what to choose by. full: what to learn from at last.

    classes: how many. metric: of the test set. chosen_by: what `judge` is, in a word.
    """

    learn: Part
    judge: Part
    full: Part
    test: Part
    classes: int
    metric: str
    chosen_by: str


def parts_of(
    train: Features, val: Features | None, test: Features, *, share: float, seed: int, select: str, choose: bool
) -> Parts:
    """Part the rows. The labels of val and test are numbered as train's, see `evaluation.features.matched`.

    share: of each class of train that is held out where there is no val. select: "held_out" or "test".
    choose: whether there is anything to choose.
    Raises UserError for fewer than two classes, and where no class has two images (or groups) to part.
    """
    classes, numbers = _numbers(train)
    whole, tested = _part(train, numbers), _part(test, numbers)
    about = {"test": tested, "classes": classes, "metric": test.metric}
    full = whole if val is None else whole.and_also(_part(val, numbers))
    if not choose or select == "test":
        return Parts(full, tested, full, chosen_by="test" if choose else "given", **about)
    if val is not None:
        return Parts(whole, _part(val, numbers), full, chosen_by="val", **about)
    mask = _held_out(train, share, seed)
    return Parts(_part(train, numbers, ~mask), _part(train, numbers, mask), full, chosen_by="held-out train", **about)


def in_both(train: Features, test: Features) -> tuple[np.ndarray, np.ndarray]:
    """The rows of train and test, (n,) each, that are one image: their ids are equal, their features but for rounding.

    Images of one name in two folders have one id but other features.
    """
    _, of_train, of_test = np.intersect1d(train.ids, test.ids, return_indices=True)
    a, b = (np.asarray(part, dtype=np.float64) for part in (train.x[of_train], test.x[of_test]))
    middle = np.mean(train.x[:: max(1, len(train) // 1000)], 0, dtype=np.float64)
    apart, length, spread = (np.linalg.norm(part, axis=1) for part in (a - b, a, a - middle))
    # In another batch a network rounds otherwise: by 1e-6 of a row in float32. Other images lie as far as rows vary.
    same = (apart == 0) | ((apart <= SAME * length) & (apart <= 0.01 * spread))
    return of_train[same], of_test[same]


def _numbers(train: Features) -> tuple[int, np.ndarray | None]:
    """How many classes train has images of, and the place of each of its labels among them."""
    if train.y.ndim == 2:
        return train.y.shape[1], None
    present = np.unique(train.y)
    if len(present) < 2:
        raise UserError(f"a classifier needs two classes, train has images of {train.classes[present[0]]} only")
    return len(present), np.searchsorted(present, np.arange(present[-1] + 1))


def _part(features: Features, numbers: np.ndarray | None, mask: np.ndarray | None = None) -> Part:
    rows = np.argsort(features.ids, kind="stable")
    rows = rows if mask is None else rows[mask[rows]]
    y = features.y[rows]
    return Part(features.x, rows, y if numbers is None else numbers[y])


def _held_out(train: Features, share: float, seed: int) -> np.ndarray:
    """(N,) bool; images of one group stay together."""
    names = train.ids if train.groups is None else train.groups.astype(str)
    names, first, member = np.unique(names, return_index=True, return_inverse=True)
    mask = held_out(train.y[first], names.tolist(), share, seed)[member]
    if not mask.any():
        raise UserError(
            f"train has {len(names)} images (or groups), one of each class: none can be held out to choose by; "
            "give val, or the strength c"
        )
    return mask
