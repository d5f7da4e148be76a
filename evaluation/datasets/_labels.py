"""Checks of a data set's labels before feature extraction, for errors that would make every protocol fail."""

from collections.abc import Sequence

import numpy as np

from evaluation.datasets.base import Split
from sslkit.errors import UserError
from sslkit.terminal.say import counted

FEWEST = 2  # classes, for a classifier
FEWEST_NUMBERS = 10  # images to learn numbers from: five folds of two


class NoLabels(UserError):
    """No image of a split has a label."""


def is_labelled(y: np.ndarray) -> np.ndarray:
    """Return (N,) bool, whether an image has a label, or a number; of several classes, whether one is known."""
    if y.dtype.kind == "f":
        return ~np.isnan(y)
    return y >= 0 if y.ndim == 1 else (y != 0).any(1)


def refuse_numbers(split: Split, what: str) -> None:
    """Raises UserError for a split whose labels are numbers. what: needs classes."""
    if split.has_numbers:
        raise UserError(
            f"{split.name} ({split.split}) has numbers for labels, and {what} needs classes: finetune and solve learn "
            "numbers"
        )


def check_labels(split: Split, protocol: str, *, several: bool = False, numbers: bool = False) -> None:
    """Check that every image has a label. Raises UserError, also for several labels per image unless `several`, and for
    numbers unless `numbers`."""
    where = f"{split.name} ({split.split})"
    if not numbers:
        refuse_numbers(split, protocol)
    if split.y.ndim != 1:
        if not several:
            raise UserError(f"{where} has several yes/no labels an image; {protocol} needs one: use the linear probe")
        return
    missing = int((~is_labelled(split.y)).sum())
    if missing:
        raise UserError(
            f"{where}: {missing} of {len(split.y)} images have no label, which {protocol} needs: leave them out"
        )


def check_classes(splits: Sequence[Split], protocol: str) -> None:
    """Check that the training images have at least two classes, or enough numbers. Raises UserError."""
    if any(split.has_numbers for split in splits):
        _check_numbers(splits)
        return
    if any(split.y.ndim != 1 for split in splits):
        return
    classes = dict.fromkeys(name for split in splits for name in occurring_classes(split))
    if len(classes) < FEWEST:
        first = splits[0]
        raise UserError(
            f"{first.name} ({first.split}) has one class, {next(iter(classes), 'none')!r}: {protocol} needs at least "
            f"{FEWEST} to tell apart"
        )


def _check_numbers(splits: Sequence[Split]) -> None:
    first, y = splits[0], np.concatenate([split.y[is_labelled(split.y)] for split in splits])
    where = f"{first.name} ({first.split})"
    if len(y) < FEWEST_NUMBERS:
        images = counted(len(y), "image")
        raise UserError(f"{where} has {images} with a number, and at least {FEWEST_NUMBERS} are needed to learn from")
    if np.ptp(y) == 0:
        raise UserError(
            f"{where}: {first.classes[0]} is {y[0]:g} for all of {counted(len(y), 'image')}: nothing to learn"
        )


def occurring_classes(split: Split) -> list[str]:
    """Return the names of the classes that occur in the split."""
    return [split.classes[label] for label in np.unique(split.y) if label >= 0]
