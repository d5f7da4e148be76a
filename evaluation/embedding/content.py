"""Which images have the same content, byte by byte."""

import hashlib
import os
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from evaluation.datasets._picked import PickedImages
from evaluation.datasets.base import Split
from evaluation.embedding.sources import Part, located
from sslkit.errors import UserError


def same_content(sources: Sequence[tuple[Sequence[Part], Sequence[str]]]) -> np.ndarray:
    """Return (N,) int64 the first row with the same content: the row itself where no earlier one has it.

    sources: parts and paths of an `Embedding` each; their rows are counted on.
    Files are compared by their bytes, and only files of one size are read; arrays are compared by
    their pixels. Raises UserError for a file that has gone.
    """
    files = [file for parts, paths in sources for file in _files(parts, paths)]
    sizes = Counter(size for _, size in files if size is not None)
    first: dict[Hashable, int] = {}
    found = np.arange(len(files))
    for row, (name, size) in enumerate(files):
        if size is None:
            key: Hashable = name.partition("-")[0]  # ids of arrays are hashes of the pixels, numbered where equal
        elif sizes[size] == 1:
            continue
        else:
            key = _hashed(name)
        found[row] = first.setdefault(key, row)
    return found


def _files(parts: Sequence[Part], paths: Sequence[str]) -> Iterator[tuple[str, int | None]]:
    """Yield the path of each image on the disk and its size; the image's id and None if it is in an array."""
    for part, row in located(parts, paths):
        path = _path(part.split, row)
        if path is None:
            yield str(part.split.ids[row]), None
            continue
        try:
            yield path, os.stat(path).st_size
        except OSError as error:
            raise _gone(path, error) from error


def _path(split: Split, row: int) -> str | None:
    images = split.images
    if isinstance(images, PickedImages):
        images, row = images.images, int(images.rows[row])
    path = images.path(row) if hasattr(images, "path") else ""
    return path if os.path.exists(path) else None


def _hashed(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).digest()
    except OSError as error:
        raise _gone(path, error) from error


def _gone(path: str, error: OSError) -> UserError:
    return UserError(
        f"cannot compare {path} by its content: {error.strerror}; put it back, or leave out duplicates=true"
    )
