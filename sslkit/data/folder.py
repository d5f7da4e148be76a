"""A folder of images, walked recursively; class folders give the labels."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sslkit.data.decode import EXTENSIONS, open_image
from sslkit.data.decoded import DecodedImages
from sslkit.data.file_contents import FileContents
from sslkit.data.images import Identity, ImageOptions, check_split
from sslkit.data.path_list import PathList
from sslkit.data.video_reader import EXTENSIONS as VIDEO_EXTENSIONS
from sslkit.errors import UserError
from sslkit.regular_files import regular

_SPLITS = {"train": ("train", "training"), "val": ("val", "valid", "validation"), "test": ("test", "testing")}


class FolderImages(DecodedImages):
    """The images below `root`, in the order of their relative paths."""

    def __init__(self, root: Path, paths: PathList, identity: Identity, options: ImageOptions) -> None:
        self.root = root
        self._files = FileContents(root, paths, options.cache)
        super().__init__(identity, options)

    def __len__(self) -> int:
        return len(self._files.paths)

    def path(self, row: int) -> str:
        return os.path.join(self.root, self._files.paths[row])

    def image_name(self, row: int) -> str:
        return self._files.paths[row].replace(os.sep, "/")

    def content(self, row: int) -> bytes:
        """The encoded image. Raises OSError."""
        return Path(regular(self.path(row))).read_bytes()

    def content_size(self, row: int) -> int:
        """Bytes of `content`. Raises OSError."""
        return os.stat(self.path(row)).st_size

    def _take(self, rows: np.ndarray) -> None:
        self._files = self._files.take(rows)

    def _open(self, row: int) -> Image.Image:
        return open_image(self.path(row))

    def _update_listing(self, digest: Any) -> None:
        self._files.update_listing(digest)

    def _update_digest(self, digest: Any) -> None:
        self._files.update_content(digest)


def splits_of_folder(root: Path) -> tuple[str, ...]:
    return tuple(_split_folders(root))


def open_folder(root: Path, options: ImageOptions) -> FolderImages:
    """All images below `root`; hidden files and folders are left out, links are followed.

    Splits: with a sub-folder `train` or `training` and one of `test`, `testing`, `val`, `valid`, `validation`, also
    written `Train` or `TRAIN`, these are the splits and anything beside them is left out. A single held-out folder is
    the split "test" ("val" works as well); two are "val" and "test". A `train` with nothing beside it is the source.
    Labels: if the folder (of each split) has images in at least two sub-folders and none beside them, the sub-folders
    are the classes, ordered by name, over all splits together.
    Raises UserError when there is no image, or none that can be read.
    """
    listing = list_folder(root, options.split, EXTENSIONS, "images")
    identity = Identity(root.resolve().name, root, listing.splits, listing.labels, listing.classes)
    return FolderImages(listing.folder, PathList(listing.paths), identity, options)


@dataclass(frozen=True)
class Listing:
    """The files of a split. folder: of the split. paths: relative to it, sorted. splits: of the source.

    labels: (N,) int64 and classes: their names; None without class folders.
    """

    folder: Path
    paths: list[str]
    splits: tuple[str, ...]
    labels: np.ndarray | None
    classes: list[str] | None


def list_folder(root: Path, split: str, extensions: Sequence[str], kind: str) -> Listing:
    """The files of one split below `root` with these extensions, by the rules of `open_folder`.

    kind: their name in messages. Raises UserError when there are none, or no such split.
    """
    folders = _split_folders(root)
    wanted = split
    if wanted == "val" and "val" not in folders and "test" in folders:
        wanted = "test"
    check_split(str(root), wanted, tuple(folders))
    paths = _listed(folders[wanted], extensions, kind)
    tops = _class_of_each(paths)
    labels = classes = None
    if tops is not None:
        others = (_classes_of(folder, extensions) for name, folder in folders.items() if name != wanted)
        classes = sorted(set(tops).union(*others))
        labels = np.searchsorted(np.array(classes), np.array(tops))
    return Listing(folders[wanted], paths, tuple(folders), labels, classes)


def _split_folders(root: Path) -> dict[str, Path]:
    found = {split: _first_folder(root, names) for split, names in _SPLITS.items()}
    train, held_out = found["train"], [found[split] for split in ("val", "test") if found[split]]
    if train and held_out:
        return {"train": train, **dict(zip(("val", "test")[-len(held_out) :], held_out, strict=True))}
    return {"train": train if train and _is_alone(train) else root}


def _first_folder(root: Path, names: Sequence[str]) -> Path | None:
    """The first of these sub-folders that exists, in small letters, with a large first one, or in large ones."""
    ways = (root / way for name in names for way in (name, name.capitalize(), name.upper()))
    return next((way for way in ways if way.is_dir()), None)


def _is_alone(folder: Path) -> bool:
    """Return True if the folder above has nothing else in it, but for hidden files."""
    with os.scandir(folder.parent) as entries:
        return all(entry.name == folder.name or entry.name.startswith(".") for entry in entries)


def _walk(folder: Path, extensions: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """(relative path, has one of the extensions) of each file that is not hidden; sorted per folder."""
    pending, seen = [""], set()
    while pending:
        below = pending.pop()
        here = os.path.join(folder, below)
        try:
            stat = os.stat(here)
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            raise UserError(f"cannot list {here}: {error.strerror}") from error
        if (stat.st_dev, stat.st_ino) in seen:  # a link to a folder above
            continue
        seen.add((stat.st_dev, stat.st_ino))
        start = os.path.join(below, "") if below else ""
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = start + entry.name
            if _is_folder(entry):
                pending.append(path)
            else:
                yield path, entry.name.rpartition(".")[2].lower() in extensions


def _is_folder(entry: os.DirEntry) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _listed(folder: Path, extensions: Sequence[str], kind: str) -> list[str]:
    paths, others = [], []
    for path, fits in _walk(folder, extensions):
        (paths if fits else others).append(path)
    if not paths:
        looked_for = " ".join(f".{extension}" for extension in extensions)
        such = f", such as {others[0]}" if others else ""
        found = f"there are {len(others)} other files{such}{_other_source(folder, others) if kind == 'images' else ''}"
        raise UserError(f"no {kind} in {folder} or below: looked for {looked_for}; {found}")
    return sorted(paths)


def _other_source(folder: Path, files: list[str]) -> str:
    """The end of a message: the source that reads these files, if there is one."""
    for kind, source, extensions in (
        ("videos", "video:", VIDEO_EXTENSIONS),
        ("images in tar files", "shards:", ("tar",)),
        ("a Hugging Face data set", "hf:", ("arrow", "parquet")),
    ):
        if any(path.rpartition(".")[2].lower() in extensions for path in files):
            return f"; for {kind}: data={source}{folder}"
    return ""


def _class_of_each(paths: list[str]) -> list[str] | None:
    """The top-level folder of each path; None if a path has none or there are fewer than two."""
    tops = []
    for path in paths:
        top, separator, _ = path.partition(os.sep)
        if not separator:
            return None
        tops.append(sys.intern(top))
    return tops if len(set(tops)) >= 2 else None


def _classes_of(folder: Path, extensions: Sequence[str]) -> set[str]:
    paths = [path for path, fits in _walk(folder, extensions) if fits]
    return set(_class_of_each(paths) or ())
