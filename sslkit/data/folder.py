"""A folder of images, walked recursively; labels where there are class folders."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sslkit.data.decode import EXTENSIONS, open_image
from sslkit.data.decoded import DecodedImages
from sslkit.data.images import Identity, ImageOptions, check_split
from sslkit.errors import UserError

_VALIDATION = ("val", "valid", "validation")


class PathList:
    """Paths in one block of bytes: a million take some 60 MB, and forked workers do not copy them."""

    def __init__(self, paths: list[str]) -> None:
        encoded = [os.fsencode(path) for path in paths]
        self._block = b"".join(encoded)
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, row: int) -> str:
        return os.fsdecode(self._block[self._ends[row] : self._ends[row + 1]])


class FolderImages(DecodedImages):
    """The images below `root`, in the order of their relative paths."""

    def __init__(self, root: Path, paths: PathList, identity: Identity, options: ImageOptions) -> None:
        self.root = root
        self._paths = paths
        super().__init__(identity, options)

    def __len__(self) -> int:
        return len(self._paths)

    def path(self, row: int) -> str:
        return os.path.join(self.root, self._paths[row])

    def _open(self, row: int) -> Image.Image:
        return open_image(self.path(row))

    def _update_digest(self, digest: Any) -> None:
        digest.update(self._paths._ends.tobytes())
        digest.update(self._paths._block)
        for row in range(len(self)):
            try:
                stat = os.stat(self.path(row))
            except OSError as error:
                raise UserError(f"{self.path(row)} has gone since the folder was opened: {error}") from error
            digest.update(b"%d %d\n" % (stat.st_size, stat.st_mtime_ns))


def splits_of_folder(root: Path) -> tuple[str, ...]:
    return tuple(_split_folders(root))


def open_folder(root: Path, options: ImageOptions) -> FolderImages:
    """All images below `root`; hidden files and folders are left out, links are followed.

    Splits: with a sub-folder `train` and one of `test`, `val`, `valid`, `validation`, these are the splits and
    anything beside them is left out. A held-out folder that is the only one is the split "test" (and may be
    called "val" as well); with two, they are "val" and "test".
    Labels: where the folder (of each split) has images in at least two sub-folders and none beside them, the
    sub-folders are the classes, in the order of their names, those of all splits together.
    Raises UserError when there is no image, or none that can be read.
    """
    folders = _split_folders(root)
    wanted = options.split
    if wanted == "val" and "val" not in folders and "test" in folders:
        wanted = "test"
    check_split(str(root), wanted, tuple(folders))
    paths = _listed(folders[wanted])
    tops = _class_of_each(paths)
    labels = classes = None
    if tops is not None:
        names = set(tops).union(*(_classes_of(folder) for split, folder in folders.items() if split != wanted))
        classes = sorted(names)
        labels = np.searchsorted(np.array(classes), np.array(tops))
    identity = Identity(root.resolve().name, root, tuple(folders), labels, classes)
    return FolderImages(folders[wanted], PathList(paths), identity, options)


def _split_folders(root: Path) -> dict[str, Path]:
    folders = {}
    validation = [root / name for name in _VALIDATION if (root / name).is_dir()]
    if (root / "train").is_dir():
        held_out = [*validation[:1], *([root / "test"] if (root / "test").is_dir() else [])]
        folders = dict(zip(("val", "test")[-len(held_out) :], held_out, strict=True)) if held_out else {}
    return {"train": root / "train", **folders} if folders else {"train": root}


def _walk(folder: Path) -> Iterator[tuple[str, bool]]:
    """(relative path, whether it is named like an image) of each file that is not hidden; sorted per folder."""
    pending, seen = [""], set()
    while pending:
        below = pending.pop()
        here = os.path.join(folder, below)
        try:
            stat = os.stat(here)
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            raise UserError(f"cannot list {here}: {error.strerror}") from error
        if (stat.st_dev, stat.st_ino) in seen:  # a link back up
            continue
        seen.add((stat.st_dev, stat.st_ino))
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = os.path.join(below, entry.name)
            if entry.is_dir():
                pending.append(path)
            else:
                yield path, entry.name.rpartition(".")[2].lower() in EXTENSIONS


def _listed(folder: Path) -> list[str]:
    paths, others = [], 0
    for path, is_image in _walk(folder):
        if is_image:
            paths.append(path)
        else:
            others += 1
    if not paths:
        looked_for = " ".join(f".{extension}" for extension in EXTENSIONS)
        raise UserError(f"no images in {folder} or below: looked for {looked_for}; there are {others} other files")
    return sorted(paths)


def _class_of_each(paths: list[str]) -> list[str] | None:
    """The top-level folder of each path, where all lie in one and there are at least two."""
    tops = []
    for path in paths:
        top, separator, _ = path.partition(os.sep)
        if not separator:
            return None
        tops.append(sys.intern(top))
    return tops if len(set(tops)) >= 2 else None


def _classes_of(folder: Path) -> set[str]:
    paths = [path for path, is_image in _walk(folder) if is_image]
    return set(_class_of_each(paths) or ())
