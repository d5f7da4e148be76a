"""Data sets that backbones are judged on. A published set is one file here; its name is the file's.

split = evaluation.datasets.open_split("pets", "test", root="data")
split = evaluation.datasets.open_split("cub2011:/big/birds", "novel_test")
split = evaluation.datasets.open_split("path/to/folder", "test")
"""

import dataclasses
import importlib
from pathlib import Path

from evaluation.datasets._overlap import overlap
from evaluation.datasets._sources import of_source
from evaluation.datasets.base import COUNTS, Entry, Listing, Split
from sslkit import members
from sslkit.data.images import ImageOptions, Images
from sslkit.errors import UserError

__all__ = ["Entry", "Listing", "Split", "find", "names", "open_split", "overlap"]


def names() -> tuple[str, ...]:
    """The name of every published set."""
    return members.names(__name__)


def find(name: str) -> Entry:
    """A published set by its name. Raises UserError for an unknown one, with the nearest."""
    if name not in names():
        raise UserError(f"there is no published set {name!r}: {members.nearest(name, names())}")
    return dataclasses.replace(importlib.import_module(f"{__name__}.{name}").ENTRY, name=name)


def open_split(
    source: str | Path | Images | Split,
    split: str = "test",
    *,
    root: str | Path = "data",
    image_size: int | None = None,
    channels: int | None = None,
    fit: str = "crop",
    on_error: str = "raise",
    counts: str = "raise",
) -> Split:
    """One split of a data set with its labels, and what it is judged by. Nothing is downloaded.

    source: a published set, `NAME` or `NAME:ROOT` (see `names`; a folder of that name is ./NAME); or anything that
        `sslkit.open_images` takes and that has labels: top-1 accuracy then, but for torchvision's class of a published
        set, which keeps that set's metric. A `Split` that is open already is returned, if it is the one asked for.
    split: as the source has them; a published set's are in the `counts` of `find(name)`. Where a set has no "val" none
        is made here: see `held_out` in _splits.py.
    root: the folder that NAME lies below.
    image_size, channels, fit: see `sslkit.open_images`; files of published sets are read as RGB by default.
    on_error: "raise" stops at an image that cannot be read. With "skip" `images` gives another image in its place and
        says so in its `index`: whoever reads them must leave out such rows, of the images and of y, ids and groups.
    counts: what a published set does that has not the published number of images or classes: "raise", or "warn".
    Raises UserError for an unknown source or split, missing files (all are named, with where to get them), and for
    images without labels.
    """
    if counts not in COUNTS:
        raise UserError(f"counts={counts!r} is not an option; known: {', '.join(COUNTS)}")
    if isinstance(source, Split):
        return _same(source, split)
    options = ImageOptions(split, image_size, channels, fit, on_error)
    if isinstance(source, str):
        name, _, own_root = source.partition(":")
        if name in names():
            return find(name).open(Path(own_root or root).expanduser(), options, counts)
    return of_source(source, options, {entry.torchvision: entry.metric for entry in map(find, names())})


def _same(opened: Split, split: str) -> Split:
    if opened.split != split:
        raise UserError(f"what is open of {opened.name} is its split {opened.split!r}, not {split!r}")
    return opened
