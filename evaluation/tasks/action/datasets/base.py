"""The contract of a video data set: its files, labels, and missing files."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from sslkit.data.published.base import as_published
from sslkit.data.video.reader import EXTENSIONS
from sslkit.errors import UserError
from sslkit.files.reading import is_there
from sslkit.options.members import nearest
from sslkit.terminal.say import and_more

SUFFIXES = tuple(f".{extension}" for extension in EXTENSIONS)
SPLITS = ("train", "test")
NAMED = 20  # largest number of missing files listed in an error


@dataclass(frozen=True)
class Films:
    """One split of a video data set.

    root: the folder that `paths`, (N,) with "/", are relative to. y: (N,) int64 labels. classes: their names.
    name, split: for tables. fold: number of the official split, from 1. sizes: (N,) int64 bytes of each file.
    left_out: reasons by path for videos of the official lists that are left out: "missing", or the decoder's error.
    note: remark printed beside a result, or "".
    """

    root: Path
    paths: tuple[str, ...]
    y: np.ndarray
    classes: tuple[str, ...]
    name: str
    split: str
    sizes: np.ndarray = field(repr=False)
    fold: int = 1
    left_out: Mapping[str, str] = field(default_factory=dict, repr=False)
    note: str = ""

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, row: int) -> Path:
        return self.root / self.paths[row]

    def name_of(self, path: str) -> str:
        """The name of a video in messages; in a folder of videos train and test may have equal paths."""
        return f"{self.root.name}/{path}"

    @cached_property
    def digest(self) -> str:
        """sha256 (hex) of the manifest: path, label and size in bytes of the available videos, and the classes.

        It identifies a copy of a data set; modification times are left out, since copying may change them.
        """
        digest = hashlib.sha256(repr((self.name, self.split, self.fold, self.classes)).encode())
        for path, label, size in zip(self.paths, self.y.tolist(), self.sizes.tolist(), strict=True):
            digest.update(f"{path}\t{label}\t{size}\n".encode())
        return digest.hexdigest()

    def without(self, unreadable: Mapping[int, str]) -> "Films":
        """The videos without some rows, which are added to `left_out` with their reasons.

        Raises UserError if none is left.
        """
        rows = np.array([row for row in range(len(self)) if row not in unreadable], dtype=np.int64)
        if not len(rows):
            first, reason = next(iter(unreadable.items()))
            raise UserError(f"{self.name}: none of the {len(self)} videos can be read; {self.path(first)}: {reason}")
        paths = tuple(self.paths[row] for row in rows)
        left_out = {**self.left_out, **{self.paths[row]: reason for row, reason in unreadable.items()}}
        return replace(self, paths=paths, y=self.y[rows], sizes=self.sizes[rows], left_out=left_out)


@dataclass(frozen=True)
class Listing:
    """The official list of one split: N videos below `root`, present on disk or not.

    paths: of each file, None if missing. wanted: the names in the lists. y: (N,) labels.
    """

    root: Path
    wanted: Sequence[str]
    paths: Sequence[str | None]
    y: Sequence[int]
    classes: Sequence[str]


@dataclass(frozen=True)
class Entry:
    """A published video data set: the variable ENTRY of one file of this folder, whose name is the data set's.

    read: (folder, split, fold) -> Listing; raises FileNotFoundError for a missing list.
    classes: number of classes. counts: number of videos by (split, fold); others may have any number.
    folds: the official splits. folders: possible locations below root; root itself is tried last.
    files: fold -> required files of both splits in that folder, each as alternatives.
    origin: source of the files, for the error.
    may_miss: True if listed videos may be missing: they are left out and counted.
    """

    title: str
    read: Callable[[Path, str, int], Listing]
    classes: int
    counts: Mapping[tuple[str, int], int]
    folds: tuple[int, ...]
    folders: tuple[str, ...]
    files: Callable[[int], Sequence[tuple[str, ...]]]
    origin: str
    licence: str
    may_miss: bool = False
    name: str = ""

    def open(self, root: Path, split: str, fold: int, counts: str) -> Films:
        """See `evaluation.tasks.action.datasets.open_films`."""
        check_split(self.name, split)
        if fold not in self.folds:
            raise UserError(f"{self.name} has no split {fold}; known: {', '.join(map(str, self.folds))}")
        folder = self._locate(root, fold)
        try:
            listing = self.read(folder, split, fold)
        except (LookupError, ValueError, OSError) as error:
            if isinstance(error, UserError):
                raise
            reason = f"{type(error).__name__}: {error}"
            raise UserError(
                f"{self.title} below {folder.absolute()} is not in the published format: {reason}"
            ) from error
        missing = [name for name, path in zip(listing.wanted, listing.paths, strict=True) if path is None]
        strict = counts == "raise" and not self.may_miss
        if missing and (strict or len(missing) == len(listing.wanted)):
            raise UserError(self._missing_films(listing, missing, split, fold))
        films = present(listing, name=self.name, split=split, fold=fold)
        wrong = as_published(f"{self.name}: split {fold} ({split})", self._differences(films), counts)
        lost = f"{len(films.left_out)} of {len(listing.wanted)} videos missing" if films.left_out else ""
        return replace(films, note="; ".join(filter(None, (wrong, lost))))

    def _locate(self, root: Path, fold: int) -> Path:
        """The folder of the data set. Raises UserError if every possible folder lacks a file."""
        wanted = self.files(fold)
        folders = [root / folder for folder in (*self.folders, "")]
        absent = [
            [any_of for any_of in wanted if not any(is_there(folder / name) for name in any_of)] for folder in folders
        ]
        near = min(range(len(folders)), key=lambda place: len(absent[place]))
        if not absent[near]:
            return folders[near]
        missing = ", ".join(_or(any_of) for any_of in absent[near])
        raise UserError(
            f"{self.title} cannot be opened from {root.absolute()}: missing in {folders[near].absolute()}: {missing}. "
            f"Source: {self.origin}. For another folder: data={self.name}:ROOT"
        )

    def _missing_films(self, listing: Listing, missing: Sequence[str], split: str, fold: int) -> str:
        which = f"split {fold}, {split}" if len(self.folds) > 1 else split
        hint = "" if len(missing) == len(listing.wanted) else '; counts="warn" leaves them out'
        return (
            f"{self.title} ({which}): {len(missing)} of {len(listing.wanted)} videos are missing below "
            f"{listing.root.absolute()}: {and_more(missing, NAMED)}. Source: {self.origin}{hint}"
        )

    def _differences(self, films: Films) -> list[str]:
        """Return the differences from the published counts."""
        wrong = []
        expected = self.counts.get((films.split, films.fold))
        if expected is not None and len(films) != expected:
            wrong.append(f"{len(films)} videos instead of {expected}")
        if len(films.classes) != self.classes:
            wrong.append(f"{len(films.classes)} classes instead of {self.classes}")
        return wrong


def present(listing: Listing, *, name: str, split: str, fold: int = 1) -> Films:
    """The videos of a listing that are on disk; the others are in `left_out`."""
    rows = [row for row, path in enumerate(listing.paths) if path is not None]
    paths = tuple(str(listing.paths[row]) for row in rows)
    sizes = np.array([os.stat(listing.root / path).st_size for path in paths], dtype=np.int64)
    missing = {wanted: "missing" for wanted, path in zip(listing.wanted, listing.paths, strict=True) if path is None}
    y = np.asarray(listing.y, dtype=np.int64)[rows]
    return Films(listing.root, paths, y, tuple(listing.classes), name, split, sizes, fold, missing)


def films_below(folder: Path) -> list[str]:
    """Sorted relative paths, with "/", of every video below a folder, without hidden files and folders."""
    films = []
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below = Path(parent).relative_to(folder)
        films += [(below / name).as_posix() for name in files if name.lower().endswith(SUFFIXES) and name[0] != "."]
    return sorted(films)


def by_stem(paths: Sequence[str]) -> dict[str, str]:
    """Map each path without its suffix, in lower case, to the path: copies differ in both from the lists."""
    return {os.path.splitext(path)[0].lower(): path for path in paths}


def check_split(name: str, split: str) -> None:
    """Raises UserError unless `split` is "train" or "test"."""
    _known(f"{name}: split", split, SPLITS)


def _known(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise UserError(f"{option}={value!r} is not known: {nearest(str(value), known)}")


def _or(any_of: Sequence[str]) -> str:
    first, *others = any_of
    return f"{first} (or {', '.join(others)})" if others else first
