"""The contract of a published data set: its files, labels and metric.

torchvision reads the sets that it has with the published splits; it tells neither what is missing nor a wrong count.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from sslkit.data.arrays import ArrayImages
from sslkit.data.images import Identity, ImageOptions, Images, check_split
from sslkit.data.published._listed import ListedImages
from sslkit.data.sources.column_values import refuse
from sslkit.errors import UserError
from sslkit.files.reading import is_there
from sslkit.terminal import say

METRICS = ("top1", "mean_per_class", "map11")


def as_published(which: str, wrong: Sequence[str], counts: str, where: str = "") -> str:
    """Return a note on what differs from the published set, "" for nothing.

    which: the set and its split. where: the files that were counted. counts: "warn" warns, "raise" raises UserError.
    """
    if not wrong:
        return ""
    faults = " and ".join(wrong)
    if counts == "raise":
        raise UserError(
            f"{which} has {faults}{where}: check that it is unpacked completely. "
            'counts="warn" accepts another copy; its numbers are not those of the published set'
        )
    say.warn(f"{which} has {faults}; its numbers are not those of the published set", stacklevel=5)
    return f"not the published set: {faults}"


@dataclass(frozen=True)
class Listing:
    """One split as listed by the files of a set.

    y: (N,) int64, or (N, K) int8 of 1, -1, 0 (do not count) for several labels. classes: their names.
    groups: (N,) int64, equal for images of one object, or None. note: printed beside a number, or "".
    The images are the N `paths` below `root`, written with "/", or `pixels`: (N, C, H, W) uint8.
    """

    y: np.ndarray
    classes: Sequence[str]
    root: Path = Path()
    paths: Sequence[str] = ()
    pixels: np.ndarray | None = None
    groups: np.ndarray | None = None
    note: str = ""

    def take(self, rows: np.ndarray) -> "Listing":
        """Select images in the given order. rows: (n,) int64, or (N,) bool."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        paths = [self.paths[row] for row in rows] if self.pixels is None else ()
        pixels = None if self.pixels is None else self.pixels[rows]
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, y=self.y[rows], paths=paths, pixels=pixels, groups=groups)

    def only(self, labels: Sequence[int]) -> "Listing":
        """Select the images of some classes and renumber these in the order of their old labels."""
        labels = np.unique(labels)
        subset = self.take(np.isin(self.y, labels))
        return replace(subset, y=np.searchsorted(labels, subset.y), classes=[self.classes[label] for label in labels])


@dataclass(frozen=True)
class Opened:
    """An open split of a published set. note: printed beside its numbers, or ""."""

    images: Images
    listing: Listing
    note: str


@dataclass(frozen=True)
class Entry:
    """A published data set: the variable ENTRY of a file in this folder; the file's name is the set's name.

    read: (folder, split) -> Listing.
    metric: one of METRICS. classes: number of classes of each split.
    counts: number of images of each split, or a range, or None if it depends on a file of the user.
    train: the split to train a final classifier on ("trainval" if there is a "val").
    licence: one line. note: printed beside its numbers.
    folders: possible folders below root; root itself is tried last.
    files: required files in that folder, for every split ("") and for single splits.
    origin: source of the files, for the error message.
    torchvision: torchvision's class of the set, or "". fetch: the arguments of each call that downloads it.
    aliases: other names of splits. class_counts: classes of the splits that have fewer.
    """

    title: str
    read: Callable[[Path, str], Listing]
    metric: str
    classes: int
    counts: Mapping[str, int | range | None]
    licence: str
    files: Mapping[str, tuple[str, ...]]
    origin: str
    folders: tuple[str, ...] = ()
    train: str = "train"
    note: str = ""
    torchvision: str = ""
    fetch: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    class_counts: Mapping[str, int] = field(default_factory=dict)
    name: str = ""

    def open(self, options: ImageOptions) -> "Opened":
        """Open the split `options.split` from the files below `options.root`; files are read as RGB by default.

        Raises UserError for missing files, with all their names and their origin, for unknown splits, and where the
        number of images or classes differs from the published one, unless `options.counts` is "warn".
        """
        refuse(options.columns, self.name, "is published with its own splits and labels; ./NAME is a folder")
        split, root = self.aliases.get(options.split, options.split), Path(options.root).expanduser()
        check_split(self.name, split, tuple(self.counts))
        try:
            listing = self.read(self.locate(root, split), split)
        except FileNotFoundError as error:
            raise UserError(self._missing(root, Path(error.filename), split)) from error
        except (LookupError, ValueError, OSError) as error:
            if isinstance(error, UserError):
                raise
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"{self.title} below {root.absolute()} is not written as published: {reason}") from error
        differences = self._differences(listing, split)
        wrong = as_published(f"{self.name}: the split {split!r}", differences, options.counts)
        note = "; ".join(filter(None, (self.note, wrong, listing.note)))
        return Opened(self._images(listing, replace(options, split=split, root=root)), listing, note)

    def locate(self, root: Path, split: str) -> Path:
        """Return the folder of the set. Raises UserError if no candidate folder has all files."""
        wanted = (*self.files.get("", ()), *self.files.get(split, ()))
        folders = [root / folder for folder in (*self.folders, "")]
        absent = [[file for file in wanted if not is_there(folder / file)] for folder in folders]
        nearest = min(range(len(folders)), key=lambda place: len(absent[place]))
        if absent[nearest]:
            raise UserError(self._missing(root, folders[nearest] / absent[nearest][0], split))
        return folders[nearest]

    def _differences(self, listing: Listing, split: str) -> list[str]:
        """Return what differs from the published set. Raises UserError for a split without images."""
        published = self.counts[split]
        expected = (published,) if isinstance(published, int) else published
        if not len(listing.y):
            raise UserError(f"{self.name}: the split {split!r} has no image in {listing.root}")
        wrong = []
        if expected is not None and len(listing.y) not in expected:
            shown = str(published) if isinstance(published, int) else f"{published[0]} to {published[-1]}"
            wrong.append(f"{len(listing.y)} images instead of {shown}")
        if len(listing.classes) != (classes := self.class_counts.get(split, self.classes)):
            wrong.append(f"{len(listing.classes)} classes instead of {classes}")
        return wrong

    def _images(self, listing: Listing, options: ImageOptions) -> Images:
        several, classes = listing.y.ndim == 2, list(listing.classes)
        y = np.ascontiguousarray(listing.y, dtype=np.int8 if several else np.int64)
        source, splits = f"{self.name}:{options.root}", tuple(self.counts)
        identity = Identity(self.name, source, splits, None if several else y, classes, self.licence)
        identity = replace(identity, multi_labels=y if several else None, groups=listing.groups)
        if listing.pixels is not None:
            return ArrayImages(listing.pixels, identity, options)
        options = replace(options, channels=options.channels or 3)
        return ListedImages(listing.root, listing.paths, identity, options)

    def _missing(self, root: Path, path: Path, split: str) -> str:
        files = (*self.files.get("", ()), *self.files.get(split, ()))
        folder = self.folders[0] if self.folders else ""
        listed = ", ".join(f"{folder}/{file}" if folder else file for file in files)
        message = f"{self.title} cannot be opened from {root.absolute()}: {path.absolute()} is missing."
        message += f" The split {split!r} needs below that folder: {listed}. From: {self.origin}."
        if self.fetch:
            calls = "; ".join(
                f"{self.torchvision}({str(root)!r}{', ' if arguments else ''}{arguments}, download=True)"
                for arguments in self.fetch
            )
            message += f' To fetch it: python -c "from torchvision.datasets import {self.torchvision}; {calls}".'
        else:
            message += " torchvision cannot fetch it: get it there and unpack it."
        if os.path.lexists(self.name):
            message += f" For the images of {Path(self.name).absolute()}: ./{self.name}."
        return f"{message} If it is elsewhere: {self.name}:ROOT"
