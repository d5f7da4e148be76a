"""The images to learn from and those to measure on, opened once for the network, the classifier and the nulls."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from evaluation.datasets import Reading, Split, find_published, note_of
from evaluation.datasets._copies import divide, near_across, with_digests, with_near_groups
from evaluation.datasets._labels import check_classes, check_labels
from evaluation.datasets._readable import readable
from evaluation.tuning.task import check_splits, open_splits
from sslkit.errors import UserError

WHO = "fine-tuning"


@dataclass(frozen=True)
class Parts:
    """splits: "train", "test" and, where the data have one, "val". note: on the test images. source: as named."""

    splits: Mapping[str, Split]
    note: str
    source: str

    @property
    def train(self) -> Split:
        return self.splits["train"]

    @property
    def test(self) -> Split:
        return self.splits["test"]


def open_parts(data: Any, reading: Reading) -> Parts:
    """Open labelled images; of data without test images a fifth is held back: groups and near-copies stay together.

    data: a source, or a mapping of "train", "test" and, if there is one, "val" to open splits.
    Raises UserError for missing labels, one class, numbers that are alike, and too few images to hold any back.
    """
    if data is None:
        raise UserError(
            "give data=, labelled images: a folder with a folder for each class, a table, a data set's name"
        )
    if isinstance(data, Mapping):
        splits = {name: with_digests(split) for name, split in check_splits(data).items()}
        return _check(Parts(splits, "", splits["train"].name))
    note = "" if find_published(data) or isinstance(data, Split) else note_of(data, reading.cache, reading.columns)
    if not note:
        return _check(Parts(open_splits(data, reading, takes_numbers=True), "", str(data)))
    whole = with_near_groups(readable(reading.open(data, "all", takes_numbers=True)))
    check_classes([whole], WHO)
    train, test = (
        replace(half, split=name) for half, name in zip(divide(whole, 0, _USE), ("train", "test"), strict=True)
    )
    return _check(Parts({"train": train, "test": test}, note, str(data)))


def copies_across(parts: Parts, reading: Reading) -> str:
    """Return the line on test images with a near-copy in train; "" for none."""
    what = f"test images of {parts.train.name}"
    return near_across(parts.train, parts.test, what, reading.columns, is_given=not parts.note)


_USE = "to measure on: label more images"


def _check(parts: Parts) -> Parts:
    check_classes([parts.train], WHO)
    for split in parts.splits.values():
        check_labels(split, WHO, several=True, numbers=True)
    return parts
