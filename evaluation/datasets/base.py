"""The contract of an evaluation data set: which images, which labels, judged by what."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from evaluation.datasets._listed import ListedImages
from evaluation.datasets._picked import PickedImages
from evaluation.datasets._rows import row_ids
from sslkit.data.arrays import ArrayImages
from sslkit.data.images import Identity, ImageOptions, Images, check_split
from sslkit.errors import UserError

METRICS = ("top1", "mean_per_class", "map11")
COUNTS = ("raise", "warn")


@dataclass(frozen=True)
class Split:
    """One split of a data set, opened.

    images: N square uint8 images. y: (N,) int64, or (N, K) int8 of 1, -1, 0 (do not count) for several labels; these
    are the labels to use (`images` does not carry those of the second kind).
    classes: their names. ids: (N,) one unique str per image that does not depend on the order of the listing: the
    path below the set's folder, or a hash of the pixels of arrays, equal images being counted.
    metric: one of METRICS; it belongs to the data set. groups: (N,) int64 images of one thing, or None.
    name, split: for tables. note: what to print beside a number (which draw, which copy), or "".
    digest: sha256 of the list of images, their labels and the pixels' options.
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

    @property
    def digest(self) -> str:
        return self.images.digest

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: np.ndarray) -> "Split":
        """Some images, in the order given: (n,) int64. The classes keep their numbers."""
        groups = None if self.groups is None else self.groups[rows]
        images = PickedImages(self.images, rows)
        return replace(self, images=images, y=self.y[rows], ids=self.ids[rows], groups=groups)


@dataclass(frozen=True)
class Listing:
    """What the files of a set say of one split.

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
        """Some images, in the order given: (n,) int64, or (N,) bool."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        paths = [self.paths[row] for row in rows] if self.pixels is None else ()
        pixels = None if self.pixels is None else self.pixels[rows]
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, y=self.y[rows], paths=paths, pixels=pixels, groups=groups)

    def only(self, labels: Sequence[int]) -> "Listing":
        """The images of some classes, numbered anew in the order of their old labels."""
        labels = np.unique(labels)
        kept = self.take(np.isin(self.y, labels))
        return replace(kept, y=np.searchsorted(labels, kept.y), classes=[self.classes[label] for label in labels])


@dataclass(frozen=True)
class Entry:
    """A published data set: one file of this folder, in its variable ENTRY; the file's name is its name.

    read: (folder, split) -> Listing.
    metric: one of METRICS. classes: how many, in each split.
    counts: images of each split, or a range of them, or None where that depends on a file of the user's.
    train: the split that a final classifier learns from ("trainval" where there is a "val").
    licence: in a line. note: what to print beside its numbers.
    folders: where it may lie below root; root itself is tried last.
    files: what must lie in that folder, for every split ("") and for one of them.
    origin: where they come from, for the error.
    torchvision: torchvision's class for it, or "". fetch: the arguments of each call that downloads it.
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
        """The split `options.split`, from the files below `root`; files are read as RGB unless options say otherwise.

        counts: what another number of images or classes than the published one does: "raise", or "warn" and go on.
        Raises UserError for missing files, naming all of them and how to get them, and for unknown splits.
        """
        if counts not in COUNTS:
            raise UserError(f"counts={counts!r} is not an option; known: {', '.join(COUNTS)}")
        split = self.aliases.get(options.split, options.split)
        check_split(self.name, split, tuple(self.counts))
        try:
            listing = self.read(self.locate(root, split), split)
        except FileNotFoundError as error:
            raise UserError(self._missing(root, Path(error.filename), split)) from error
        except (LookupError, ValueError, OSError) as error:
            if isinstance(error, UserError):
                raise
            said = f"{type(error).__name__}: {error}"
            raise UserError(f"{self.title} below {root.absolute()} is not written as published: {said}") from error
        wrong = self._check(listing, split, counts)
        listing = replace(listing, note="; ".join(filter(None, (wrong, listing.note))))
        return self._split(listing, root, replace(options, split=split))

    def locate(self, root: Path, split: str) -> Path:
        """The folder of the set. Raises UserError when a file is missing in each that it may be."""
        wanted = (*self.files.get("", ()), *self.files.get(split, ()))
        folders = [root / folder for folder in (*self.folders, "")]
        absent = [[file for file in wanted if not (folder / file).exists()] for folder in folders]
        nearest = min(range(len(folders)), key=lambda place: len(absent[place]))
        if absent[nearest]:
            raise UserError(self._missing(root, folders[nearest] / absent[nearest][0], split))
        return folders[nearest]

    def _check(self, listing: Listing, split: str, counts: str) -> str:
        """What differs from the published set, "" for nothing. Raises UserError for it unless `counts` is "warn"."""
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
        if not wrong:
            return ""
        message = f"{self.name}: the split {split!r} has {' and '.join(wrong)}"
        if counts == "raise":
            raise UserError(
                f"{message}: is it unpacked whole, or is it another copy? If it is meant, open_split(..., "
                'counts="warn") goes on; its numbers are then not those of the published set'
            )
        warnings.warn(f"{message}; its numbers are not those of the published set", stacklevel=4)
        return f"not the published set: {' and '.join(wrong)}"

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
