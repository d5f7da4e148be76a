"""Accuracies by class as a table in a file, and the worst classes with their images as a PNG."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evaluation.datasets.base import Split
from evaluation.protocols._answers_sheet import FIRST, Cell, draw_sheet
from evaluation.results.statistics import share
from sslkit.data.thumbnails import shorten
from sslkit.files.writing import write_csv

COLUMNS = ("data", "class", "images", "accuracy", "low", "high", "taken_for", "times")
LETTERS = 16  # of a class


@dataclass(frozen=True)
class Sorted:
    """Images with their classes and those that they were put into.

    split: that the images are of. ids: (n,) of the images, in it. y, answers: (n,) of `classes`. sure: (n,) probability
    of the answer. groups: (n,) of images that belong together, or None.
    """

    split: Split
    ids: np.ndarray
    y: np.ndarray
    answers: np.ndarray
    sure: np.ndarray
    classes: Sequence[str]
    groups: np.ndarray | None

    def rows_by_accuracy(self) -> list[np.ndarray]:
        """The rows of each class that has some, the class of lowest accuracy first, of equal ones the largest."""
        rows = [np.flatnonzero(self.y == label) for label in np.unique(self.y)]
        right = self.y == self.answers
        return sorted(rows, key=lambda each: (right[each].mean(), -len(each), self.y[each[0]]))


def write_classes(sets: Sequence[Sorted], path: Path) -> None:
    """Write the accuracy of each class of each set, with its interval and the class that it is most taken for."""
    write_csv(path, [COLUMNS, *(line for each in sets for line in _lines(each))])


def _lines(images: Sorted) -> Iterator[tuple[object, ...]]:
    for rows in images.rows_by_accuracy():
        estimate = share(
            images.answers[rows] == images.y[rows], images.groups if images.groups is None else images.groups[rows]
        )
        wrong = images.answers[rows][images.answers[rows] != images.y[rows]]
        times = np.bincount(wrong, minlength=1)
        taken = (images.classes[times.argmax()], int(times.max())) if len(wrong) else ("", 0)
        name, ends = images.classes[images.y[rows[0]]], (round(end, 6) for end in estimate.interval)
        yield (images.split.name, name, len(rows), round(estimate.value, 6), *ends, *taken)


def draw_worst(images: Sorted, count: int, title: str, path: Path) -> bool:
    """Draw up to `count` classes in which images are wrong, each with its surest wrong images, then right ones.

    Returns whether there is any.
    """
    row_of = {str(name): row for row, name in enumerate(images.split.ids)}
    lines = []
    for rows in images.rows_by_accuracy()[:count]:
        right = images.answers[rows] == images.y[rows]
        if right.all():
            break
        shown = rows[np.lexsort((-images.sure[rows], right))][: FIRST + 1]
        first, *others = (_cell(images, row, row_of[str(images.ids[row])]) for row in shown)
        lines.append([replace(first, words=f"{first.words} ({100 * right.mean():.0f} % of {len(rows)})"), *others])
    if lines:
        draw_sheet(lines, title, path)
    return bool(lines)


def _cell(images: Sorted, row: int, place: int) -> Cell:
    label, answer = (shorten(images.classes[values[row]], LETTERS) for values in (images.y, images.answers))
    is_right = images.y[row] == images.answers[row]
    return Cell(
        images.split, place, "right" if is_right else "wrong", f" {label}" + ("" if is_right else f" as {answer}")
    )
