"""The problem: labelled images to learn from and to choose on, and a part that nothing sees before the end."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from evaluation.datasets import Reading, Split, find_published, splits_of
from evaluation.datasets._copies import divide, near_across, units, with_near_groups
from evaluation.datasets._labels import check_classes, is_labelled
from evaluation.datasets._readable import readable
from evaluation.datasets._sources import check_labelled
from sslkit.data.held_out import held_out
from sslkit.data.images import Images
from sslkit.data.sources.class_names import renumber, unseen
from sslkit.errors import UserError
from sslkit.terminal.say import counted

PART, OF_NUMBERS = "a fifth of each class", "a fifth"
FEW = 100  # labelled images; with fewer the interval on the held-back ones is wider than most differences


@dataclass(frozen=True, eq=False)
class Problem:
    """development: labelled images that everything may see. held_back: those that only the chosen model meets.

    pretrainable: the known images and those without a label, none with labels. notes: lines on what was done.
    The labels of both are numbers of the classes of known images.
    """

    development: Split
    held_back: Split
    pretrainable: Images
    notes: tuple[str, ...]

    def count_unlabelled(self) -> int:
        """Images without a label, which can be pretrained on."""
        return len(self.pretrainable) - len(self.development)

    @property
    def has_labels(self) -> bool:
        return bool(is_labelled(self.development.y).any())

    @property
    def has_numbers(self) -> bool:
        return self.development.has_numbers

    @property
    def name(self) -> str:
        return self.development.name

    @cached_property
    def classes(self) -> tuple[str, ...]:
        return tuple(map(str, self.development.classes))


def open_problem(data: Any, reading: Reading, seed: int) -> Problem:
    """Open a data set and hold a part back.

    Test images of the data set's own are held back; else a fifth of each class, by (seed, names), where copies,
    near-copies and groups stay on one side. Unreadable images are left out, with a line.
    Raises UserError for data without labels, of one class, or of so few images that none can be held back.
    """
    entry = find_published(data)
    offered = tuple(entry.counts) if entry else splits_of(data, reading.cache, reading.columns)
    if "all" in offered and not entry:
        return _divide(reading.open(data, "all", needs_labels=False, takes_numbers=True), seed)
    tested = next((name for name in ("test", "val") if name in offered), None)
    if "train" not in offered or tested is None:
        raise UserError(f"{data}: solve needs training images with labels; its splits are {', '.join(offered)}")
    opened = reading.open(data, "train", needs_labels=False, takes_numbers=True)
    train = readable(opened)
    learned = _take_labelled(train)
    check_classes([learned], "a classifier")
    held_back = _take_labelled(readable(reading.open(data, tested, takes_numbers=True)))
    near = near_across(learned, held_back, f"{tested} images of {learned.name}", reading.columns, is_given=True)
    told = f"held back: {counted(len(held_back), 'image')} of its own split {tested}"
    unused = "its split val is not used" if "val" in offered and tested != "val" else ""
    return _match_classes(learned, held_back, _without_labels(opened, train.ids), [told, unused, near])


def open_unlabelled(data: Any, reading: Reading, seed: int) -> Problem:
    """Open a data set without labels: a fifth is held back from what is pretrained on, to find views of its images."""
    names = splits_of(data, reading.cache, reading.columns)
    opened = reading.open(data, "all" if "all" in names else "train", needs_labels=False)
    whole = with_near_groups(readable(opened))
    names, first, member = units(whole.ids, whole.pixel_digests, whole.groups)
    out = held_out(np.zeros(len(first), np.int64), names.tolist(), seed=seed)[member]
    learned, held_back = whole.take(np.flatnonzero(~out)), whole.take(np.flatnonzero(out))
    note = f"held back: {counted(len(held_back), 'image')} of {len(whole):,}; no image has a label"
    return Problem(learned, held_back, _without_labels(opened, learned.ids), (note,))


def _divide(opened: Split, seed: int) -> Problem:
    """Hold a fifth of an undivided data set back."""
    whole = with_near_groups(readable(opened))
    labelled = _take_labelled(whole)
    check_classes([labelled], "a classifier")
    learned, held_back = divide(labelled, seed, "to measure on")
    member_of, withheld = (whole.ids, held_back.ids) if whole.groups is None else (whole.groups, held_back.groups)
    pretrainable = _without_labels(opened, whole.ids[~np.isin(member_of, withheld)])
    together = "; groups and near-copies stay on one side" if labelled.groups is not None else ""
    share = OF_NUMBERS if learned.has_numbers else PART
    note = f"held back: {counted(len(held_back), 'image')}, {share}{together}"
    return _match_classes(learned, held_back, pretrainable, [note])


def _without_labels(opened: Split, ids: np.ndarray) -> Images:
    """The images of these names, for a training that learns from no label and is judged by none."""
    rows = np.flatnonzero(np.isin(opened.ids, ids))
    images = copy.copy(opened.images) if len(rows) == len(opened) else opened.images.part(rows, "train")
    images.source = None  # the source itself is more than these
    images.splits, images.split = ("train",), "train"
    images.labels, images.multi_labels, images.numbers, images.groups = None, None, None, None
    return images


def _take_labelled(split: Split) -> Split:
    """The images with a label. Raises UserError if none has one."""
    check_labelled(split)
    has_label = is_labelled(split.y)
    return split if has_label.all() else split.take(np.flatnonzero(has_label))


def _match_classes(learned: Split, held_back: Split, pretrainable: Images, notes: Sequence[str]) -> Problem:
    """The problem, its labels numbered by the classes that known images have.

    Raises UserError for a class that only held-back images have, and for one label an image beside several.
    """
    if learned.y.ndim != held_back.y.ndim:
        raise UserError(f"{learned.name}: one split has several labels per image, the other has one")
    if learned.y.ndim == 1 and not learned.has_numbers:
        tested = renumber(held_back.y, held_back.classes, learned.classes, held_back.name)
        unseen(tested, learned.y, learned.classes, held_back.name)
        present, numbers = np.unique(learned.y, return_inverse=True)
        classes = [learned.classes[label] for label in present]
        learned = replace(learned, y=numbers, classes=classes)
        held_back = replace(held_back, y=np.searchsorted(present, tested), classes=classes)
    return Problem(learned, held_back, pretrainable, tuple(filter(None, notes)))
