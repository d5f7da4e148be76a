"""The files of a published split, and what the readers of the sets share."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.decode.formats import EXTENSIONS
from sslkit.data.images import Identity, ImageOptions
from sslkit.data.path_list import PathList
from sslkit.data.sources.folder import FolderImages


class ListedImages(FolderImages):
    """The files `paths` below `root`, in the order given.

    y, groups: also covered by the digest; y may be (N, K), and `identity.labels` is then None.
    """

    def __init__(
        self,
        root: Path,
        paths: Sequence[str],
        identity: Identity,
        options: ImageOptions,
        y: np.ndarray,
        groups: np.ndarray | None = None,
    ) -> None:
        self._y, self._groups = y, groups
        super().__init__(root, PathList(list(paths)), identity, options)

    def _update_listing(self, digest: Any) -> None:
        self._update_labels(digest)
        super()._update_listing(digest)

    def _update_digest(self, digest: Any) -> None:
        self._update_labels(digest)
        super()._update_digest(digest)

    def _update_labels(self, digest: Any) -> None:
        digest.update(self._y.tobytes())
        digest.update(b"" if self._groups is None else self._groups.tobytes())


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
