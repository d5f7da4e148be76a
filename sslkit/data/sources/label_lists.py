"""The classes of N images by number: none, one or several each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MISSING = -1  # in place of a count: the labels of an image are not known


@dataclass(frozen=True, eq=False)
class LabelLists:
    """numbers: (M,) int64 the classes of all images, one after the other. counts: (N,) int32 of each, or MISSING."""

    numbers: np.ndarray
    counts: np.ndarray

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int] | None]) -> "LabelLists":
        """lists: the classes of each image; None where they are not known."""
        counts = np.array([MISSING if row is None else len(row) for row in lists], np.int32)
        return cls(np.array([number for row in lists for number in row or ()], np.int64), counts)

    def __len__(self) -> int:
        return len(self.counts)

    def lists(self) -> list[list[int] | None]:
        ends = np.cumsum(self._lengths).tolist()
        numbers = self.numbers.tolist()
        spans = zip(self.counts.tolist(), ends, strict=True)
        return [None if count == MISSING else numbers[end - count : end] for count, end in spans]

    def rows(self, rows: np.ndarray) -> "LabelLists":
        """The labels of some images (n,) int64, in their order."""
        lengths = self._lengths
        starts, wanted = (np.cumsum(lengths) - lengths)[rows], lengths[rows]
        within = np.arange(wanted.sum()) - np.repeat(np.cumsum(wanted) - wanted, wanted)
        return LabelLists(self.numbers[np.repeat(starts, wanted) + within], self.counts[rows])

    @property
    def known(self) -> np.ndarray:
        """(N,) bool."""
        return self.counts != MISSING

    @property
    def are_several(self) -> bool:
        """True if an image has more than one class."""
        return bool((self.counts > 1).any())

    def single(self) -> np.ndarray:
        """(N,) int64 the number of an image's class; the smallest int64 without one. For at most one each."""
        classes = np.full(len(self), np.iinfo(np.int64).min)
        classes[self.counts == 1] = self.numbers
        return classes

    def indicator(self, classes: np.ndarray) -> np.ndarray:
        """(N, K) int8 for the classes (K,), sorted: 1 (yes), -1 (no), 0 in all columns where they are not known."""
        matrix = np.zeros((len(self), len(classes)), np.int8)
        matrix[self.known] = -1
        rows = np.repeat(np.arange(len(self)), self._lengths)
        matrix[rows, np.searchsorted(classes, self.numbers)] = 1
        return matrix

    @property
    def _lengths(self) -> np.ndarray:
        return np.maximum(self.counts, 0).astype(np.int64)
