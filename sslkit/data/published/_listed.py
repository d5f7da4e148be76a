"""The files of a published split, and what the readers of the sets share."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sslkit.data.decode.formats import EXTENSIONS
from sslkit.data.images import Identity, ImageOptions
from sslkit.data.path_list import PathList
from sslkit.data.sources.folder import FolderImages


class ListedImages(FolderImages):
    """The files `paths` below `root`, in the order given, of which several splits may have the same."""

    def __init__(self, root: Path, paths: Sequence[str], identity: Identity, options: ImageOptions) -> None:
        super().__init__(root, PathList(list(paths)), identity, options)


def subfolders(folder: Path) -> list[str]:
    """Return the sorted names of the folders in a folder, without hidden ones. Raises FileNotFoundError."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and os.path.isdir(entry.path))


def in_classes(root: Path, classes: Sequence[str], below: str = "") -> tuple[list[str], np.ndarray]:
    """Return the image files of each class folder, sorted by name, and their labels.

    below: path from root to the class folders; the N paths start with it. Labels (N,) are indices into `classes`.
    """
    paths, y = [], []
    for label, name in enumerate(classes):
        start = f"{below}/{name}" if below else name
        with os.scandir(root / start) as entries:
            names = (entry.name for entry in entries if not entry.name.startswith("."))
            files = sorted(name for name in names if name.rpartition(".")[2].lower() in EXTENSIONS)
        paths += [f"{start}/{file}" for file in files]
        y.append(np.full(len(files), label))
    return paths, np.concatenate(y) if y else np.empty(0, np.int64)


def split_number(split: str) -> tuple[str, int]:
    """Parse the name of one of several official splits: "train7" -> ("train", 7); "train" is "train1"."""
    kind = split.rstrip("0123456789")
    return kind, int(split[len(kind) :] or 1)


def counts_by_number(counts: Mapping[str, int], many: int) -> dict[str, int]:
    """Return the counts of each kind of split, by its plain name and with the numbers 1 to `many`."""
    return {**counts, **{f"{kind}{k}": count for k in range(1, many + 1) for kind, count in counts.items()}}
