"""Checks of a data set's labels before feature extraction, for errors that would make every protocol fail."""

from collections.abc import Sequence

import numpy as np

from evaluation.datasets.base import Split
from sslkit.errors import UserError

FEWEST = 2  # classes, for a classifier


class NoLabels(UserError):
    """No image of a split has a label."""


def check_labels(split: Split, protocol: str, *, several: bool = False) -> None:
    """Check that every image has a label. Raises UserError, also for several labels per image unless `several`."""
    where = f"{split.name} ({split.split})"
    if split.y.ndim != 1:
        if not several:
            raise UserError(f"{where} has several yes/no labels an image; {protocol} needs one: use the linear probe")
        return
    missing = int((split.y < 0).sum())
    if missing:
        raise UserError(
            f"{where}: {missing} of {len(split.y)} images have no label, which {protocol} needs: leave them out"
        )


def check_classes(splits: Sequence[Split], protocol: str) -> None:
    """Check that the training images have at least two classes. Raises UserError."""
    if any(split.y.ndim != 1 for split in splits):
        return
    classes = dict.fromkeys(name for split in splits for name in occurring_classes(split))
    if len(classes) < FEWEST:
        first = splits[0]
        raise UserError(
            f"{first.name} ({first.split}) has one class, {next(iter(classes), 'none')!r}: {protocol} needs at least "
            f"{FEWEST} to tell apart"
        )


def occurring_classes(split: Split) -> list[str]:
    """Return the names of the classes that occur in the split."""
    return [split.classes[label] for label in np.unique(split.y) if label >= 0]
