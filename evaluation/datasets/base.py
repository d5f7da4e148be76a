"""The contract of an evaluation data set: its images, labels and metric."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.datasets._listed import ListedImages, PickedImages
from sslkit.data.arrays import ArrayImages
from sslkit.data.images import Identity, ImageOptions, Images, check_split
from sslkit.errors import UserError
from sslkit.files.reading import is_there
from sslkit.terminal import say

METRICS = ("top1", "mean_per_class", "map11")
COUNTS = ("raise", "warn")


def check_counts(counts: str) -> None:
    """Raise UserError for an unknown reaction to a set of another size than the published one."""
    if counts not in COUNTS:
        raise UserError(f"counts={counts!r} is not an option; known: {', '.join(COUNTS)}")


def as_published(which: str, wrong: Sequence[str], counts: str, where: str = "") -> str:
    """Return a note on what differs from the published set, "" for nothing.

    which: the set and its split. where: the files that were counted. counts: "warn" warns, "raise" raises UserError.
    """
    if not wrong:
        return ""
    said = " and ".join(wrong)
    if counts == "raise":
        raise UserError(
            f"{which} has {said}{where}: check that it is unpacked completely. "
            'counts="warn" accepts another copy; its numbers are not those of the published set'
        )
    say.warn(f"{which} has {said}; its numbers are not those of the published set", stacklevel=5)
    return f"not the published set: {said}"


@dataclass(frozen=True)
class Split:
    """An open split of a data set.

    images: N square uint8 images. y: (N,) int64, or (N, K) int8 of 1, -1, 0 (do not count) for several labels; these
    are the labels to use (`images` does not carry those of the second kind).
    classes: their names. ids: (N,) unique str per image, independent of the order of the listing: the path below the
    set's folder, or a hash of the pixels for arrays, numbered where images are equal.
    metric: one of METRICS; it belongs to the data set. groups: (N,) int64, equal for images of one object, or pages of
    one file, or None.
    boxes: (N, 4) left, upper, right, lower of the object in its whole image, as shares of that; nan for an image of no
    object; None for images that are not parts of others.
    name, split: for tables. note: printed beside a number (which draw, which copy), or "".
    source: what `open_split` was given, of which this may be a part; None of a split that was made otherwise.
    digest: sha256 of the list of images, their labels and the pixels' options.
    pixel_digests: (N,) int64, equal for the same image, see `sslkit.data.pixel_digest`; None before they were read.
    """

    images: Images
    y: np.ndarray
    classes: Sequence[str]
    ids: np.ndarray
    metric: str
    name: str
    split: str
    groups: np.ndarray | None = field(default=None, repr=False)
    note: str = ""
    boxes: np.ndarray | None = field(default=None, repr=False)
    source: Any = field(default=None, repr=False)
    pixel_digests: np.ndarray | None = field(default=None, repr=False)

    @property
    def digest(self) -> str:
        return self.images.digest

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: np.ndarray) -> "Split":
        """Select images in the given order. rows: (n,) int64. The classes keep their numbers."""
        parts = {"groups": self.groups, "boxes": self.boxes, "pixel_digests": self.pixel_digests}
        parts = {name: None if part is None else part[rows] for name, part in parts.items()}
        return replace(self, images=PickedImages(self.images, rows), y=self.y[rows], ids=self.ids[rows], **parts)


@dataclass(frozen=True)
class Listing:
    """One split as listed by the files of a set.

    y, classes, groups, note: as in `Split`.
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
        kept = self.take(np.isin(self.y, labels))
        return replace(kept, y=np.searchsorted(labels, kept.y), classes=[self.classes[label] for label in labels])


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

    def open(self, root: Path, options: ImageOptions, counts: str = "raise") -> Split:
        """Open the split `options.split` from the files below `root`; files are read as RGB unless set in `options`.

        counts: "raise", or "warn" and go on, if the number of images or classes differs from the published one.
        Raises UserError for missing files, with all their names and their origin, and for unknown splits.
        """
        split = self.aliases.get(options.split, options.split)
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
        wrong = as_published(f"{self.name}: the split {split!r}", self._differences(listing, split), counts)
        listing = replace(listing, note="; ".join(filter(None, (wrong, listing.note))))
        return self._split(listing, root, replace(options, split=split))

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
        known = (published,) if isinstance(published, int) else published
        if not len(listing.y):
            raise UserError(f"{self.name}: the split {split!r} has no image in {listing.root}")
        wrong = []
        if known is not None and len(listing.y) not in known:
            shown = str(published) if isinstance(published, int) else f"{published[0]} to {published[-1]}"
            wrong.append(f"{len(listing.y)} images instead of {shown}")
        if len(listing.classes) != (classes := self.class_counts.get(split, self.classes)):
            wrong.append(f"{len(listing.classes)} classes instead of {classes}")
        return wrong

    def _split(self, listing: Listing, root: Path, options: ImageOptions) -> Split:
        several = listing.y.ndim == 2
        classes = list(listing.classes)
        y = np.ascontiguousarray(listing.y, dtype=np.int8 if several else np.int64)
        identity = Identity(self.name, None, tuple(self.counts), None if several else y, classes, self.licence)
        if listing.pixels is None:
            options = replace(options, channels=options.channels or 3)
            images: Images = ListedImages(listing.root, listing.paths, identity, options, y, listing.groups)
            ids = np.array(listing.paths)
        else:
            images, ids = ArrayImages(listing.pixels, identity, options), row_ids(listing.pixels)
        note = "; ".join(filter(None, (self.note, listing.note)))
        return Split(images, y, classes, ids, self.metric, self.name, options.split, listing.groups, note)

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
        return f"{message} If it is elsewhere: {self.name}:ROOT"


def row_ids(rows: np.ndarray) -> np.ndarray:
    """Return (N,) hashes of the rows' values, numbered where rows are equal: ids that do not depend on the order."""
    seen: dict[str, int] = {}
    ids = []
    for row in rows:
        name = hashlib.blake2b(np.ascontiguousarray(row), digest_size=12).hexdigest()
        seen[name] = seen.get(name, 0) + 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return np.array(ids)
