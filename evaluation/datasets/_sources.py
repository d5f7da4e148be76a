"""Splits of the sources of `sslkit.open_images`: the package's own sets, image files, arrays, shards, own Datasets."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.datasets._labels import NoLabels, check_classes, is_labelled
from evaluation.datasets._picked import PickedImages
from evaluation.datasets.base import Split, row_ids
from sslkit.data.arrays import ArrayImages
from sslkit.data.columns import NO_COLUMNS, Columns
from sslkit.data.held_out import held_out
from sslkit.data.image_options import CACHE, ImageOptions
from sslkit.data.images import Images, check_split
from sslkit.data.near_groups import group_images
from sslkit.data.published import find, find_published, names, open_published
from sslkit.data.published.base import Entry
from sslkit.data.sources.folder import FolderImages
from sslkit.data.sources.hf import HfImages
from sslkit.data.sources.named import is_divisible, open_images, splits
from sslkit.data.sources.own_arrays import OwnArrays
from sslkit.data.sources.own_dataset import OwnImages
from sslkit.data.sources.shards import ShardImages
from sslkit.data.sources.torchvision_sets import PREFIX, TorchvisionImages
from sslkit.errors import UserError
from sslkit.terminal import say
from sslkit.terminal.say import counted

PARTS = ("train", "test", "all")  # of a source without held-out images: four fifths, a fifth, and both together
HELD_OUT = "test: a fifth of each class, held out by name"
NUMBERS_HELD_OUT = "test: a fifth, held out by name"


def splits_of(
    source: str | Path | Images, cache: str | Path | None = CACHE, columns: Columns = NO_COLUMNS
) -> tuple[str, ...]:
    """Return the splits of a source that `of_source` opens: its own, or PARTS if it has only training images.

    cache, columns: as of `open_images`.
    """
    return PARTS if _is_undivided(source, cache, columns) else splits(source, cache, columns)


def note_of(source: Any, cache: str | Path | None = CACHE, columns: Columns = NO_COLUMNS) -> str:
    """Return the note on a source whose test images are held out of its only split; "" for others.

    cache, columns: as of `open_images`.
    """
    return _note(columns) if _is_undivided(source, cache, columns) else ""


def _note(columns: Columns) -> str:
    note = NUMBERS_HELD_OUT if columns.reads_numbers else HELD_OUT
    return note if columns.group is None else f"{note}, whole groups"


def _is_undivided(source: Any, cache: str | Path | None, columns: Columns) -> bool:
    """Return whether a source has only training images, of which some can be held out."""
    if isinstance(source, Split):
        return False
    return is_divisible(source) and splits(source, cache, columns) == ("train",)


def of_source(source: str | Path | Images, options: ImageOptions) -> Split:
    """Open one split of a source, with the source's own labels; -1 for images without.

    Raises UserError for the training or test images of a folder without labels, or with too small classes.
    """
    if entry := find_published(source):
        if isinstance(source, PickedImages):
            raise UserError(f"these are some images of {source.name}: give the Split itself, which has their labels")
        return _of_published(entry, source.source if isinstance(source, Images) else source, options)
    if _is_undivided(source, options.cache, options.columns):
        check_split(str(source), options.split, PARTS)
        return _part(_whole(source, replace(options, split="train")), options.split)
    return _whole(source, options)


def _of_published(entry: Entry, source: str, options: ImageOptions) -> Split:
    opened = open_published(source, options)
    images, listing = opened.images, opened.listing
    y = np.ascontiguousarray(listing.y, dtype=np.int64 if listing.y.ndim == 1 else np.int8)
    ids = np.array(listing.paths) if listing.pixels is None else row_ids(listing.pixels)
    names = images.classes, ids, entry.metric, entry.name, images.split
    return Split(images, y, *names, images.groups, opened.note)


def _whole(source: str | Path | Images, options: ImageOptions) -> Split:
    """Open a split that the source has itself."""
    images = _open_images(source, options)
    ids, groups = _ids(images), images.groups
    if images.multi_labels is not None:
        return Split(images, images.multi_labels, images.classes, ids, "map11", images.name, images.split, groups)
    if images.numbers is not None:
        return Split(images, images.numbers, images.classes, ids, "r2", images.name, images.split, groups)
    labels = np.full(len(images), -1) if images.labels is None else images.labels
    classes = images.classes or [str(label) for label in range(int(labels.max()) + 1)]
    from_torchvision = str(images.source).startswith(PREFIX)
    metrics = {entry.torchvision: entry.metric for entry in map(find, names())} if from_torchvision else {}
    metric = metrics.get(images.name, "top1")
    return Split(images, labels, classes, ids, metric, images.name, images.split, groups)


def check_labelled(split: Split) -> None:
    """Raises NoLabels if no image of the split has a label."""
    if not (is_labelled(split.y) if split.y.ndim == 1 else split.y >= 1).any():
        raise NoLabels(
            f"{split.name} has no labels in its split {split.split!r}, which evaluation needs: a folder gets them "
            "from at least two class folders with images, a list of files from its column label, a .npz file from "
            "y_test (y_train, y), shards from .cls, .json or .txt members, a Hugging Face data set from a column of "
            "classes, a Dataset from its targets, an array from a pair, (images, labels); the protocols view_retrieval "
            "and lidar need none"
        )


def drop_unlabelled(split: Split) -> Split:
    """The images of a split that have a label, with a warning and a note if some have none.

    Images with several classes stay all: those of which none is known do not count in their metric.
    Raises UserError if no image has a label.
    """
    check_labelled(split)
    rows = np.flatnonzero(is_labelled(split.y)) if split.y.ndim == 1 else np.arange(len(split))
    lost = len(split) - len(rows)
    if not lost:
        return split
    say.warning(f"{lost:,} of {len(split):,} images of {split.name} ({split.split}) have no label and are left out")
    note = "; ".join(filter(None, (split.note, f"{counted(lost, 'image')} without a label left out")))
    labelled_split = split.take(rows)
    if isinstance(split.images, (FolderImages, HfImages, OwnArrays, OwnImages, ShardImages)):
        labelled_split = replace(labelled_split, images=split.images.part(rows, split.split))
    return replace(labelled_split, note=note)


def _part(whole: Split, name: str) -> Split:
    """Return one of PARTS. The draw depends on the names below the folder alone, so it is the same on every machine.

    Pages of one file stay together.
    """
    if name == "all":
        return replace(whole, split=name)
    check_labelled(whole)
    check_classes([whole], "a held-out part")
    test = test_images(whole)
    if (
        name == "test"
        and whole.y.ndim == 1
        and not whole.has_numbers
        and len(np.unique(whole.y[test & (whole.y >= 0)])) < 2
    ):
        raise UserError(
            f"{whole.name} has no test images, and its classes are too small to hold a fifth out: at least two "
            "classes need two images; add images, or give it a test split (a folder: train/ and test/ in it)"
        )
    rows = np.flatnonzero(test == (name == "test"))
    note = _note(whole.images.options.columns)
    return replace(whole.take(rows), images=whole.images.part(rows, name), split=name, note=note)


def test_images(whole: Split) -> np.ndarray:
    """Return (N,) bool: the fifth of an undivided source that is its test split, whole groups of it."""
    return held_out(whole.y, whole.ids, groups=whole.groups)


def _open_images(source: str | Path | Images, options: ImageOptions) -> Images:
    if not isinstance(source, Images) or source.source is not None:
        return open_images(source, **vars(options))
    if source.split != options.split:
        raise UserError(
            f"{source.name} was built in Python as its split {source.split!r}, so it has no split {options.split!r}"
        )
    size, channels = options.image_size or source.image_size, options.channels or source.channels
    fitted = source.at(image_size=size, channels=channels, fit=options.fit, interpolation=options.interpolation)
    return group_images(fitted, options.columns)


def _ids(images: Images) -> np.ndarray:
    """Return (N,) names within the split, or hashes of the pixels, numbered where images are equal."""
    if isinstance(images, ArrayImages):
        return row_ids(images.pixels)
    if isinstance(images, TorchvisionImages) and not os.path.isfile(images.path(0)):  # made one by one, not files
        return row_ids(np.asarray(images.dataset[row][0]) for row in range(len(images)))
    return np.array([images.image_name(row) for row in range(len(images))])
