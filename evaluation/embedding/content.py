"""Which images have the same content, byte by byte."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial

import numpy as np

from evaluation.datasets._picked import PickedImages
from evaluation.embedding.sources import Part, located
from sslkit.errors import UserError


def same_content(sources: Sequence[tuple[Sequence[Part], Sequence[str]]]) -> np.ndarray:
    """Return (N,) int64 the first row with the same content: the row itself where no earlier one has it.

    sources: parts and paths of an `Embedding` each; their rows are counted on.
    Files, and images in shards and Hugging Face data sets, are compared by their bytes, and only files of one size are
    read; arrays are compared by their pixels. Raises UserError for a file that has gone.
    """
    images = [one for parts, paths in sources for one in _images(parts, paths)]
    sizes = Counter(size for _, size in images if size is not None)
    first: dict[Hashable, int] = {}
    found = np.arange(len(images))
    for row, (content, size) in enumerate(images):
        if size is None:
            key: Hashable = content
        elif sizes[size] == 1:
            continue
        else:
            key = hashlib.sha256(content()).digest()
        found[row] = first.setdefault(key, row)
    return found


def _images(
    parts: Sequence[Part], paths: Sequence[str]
) -> Iterator[tuple[str, None] | tuple[Callable[[], bytes], int]]:
    """Yield how to read the bytes of each image, and their number; a hash of the pixels and None of one in an array."""
    for part, row in located(parts, paths):
        images, place = part.split.images, row
        if isinstance(images, PickedImages):
            images, place = images.images, int(images.rows[row])
        path = images.path(place) if hasattr(images, "path") else ""
        if hasattr(images, "content"):  # of shards and Hugging Face data sets
            yield partial(images.content, place), len(images.content(place))
        elif not os.path.exists(path):
            yield str(part.split.ids[row]).partition("-")[0], None  # ids of arrays are hashes, numbered where equal
        else:
            try:
                yield partial(_read, path), os.stat(path).st_size
            except OSError as error:
                raise _gone(path, error) from error


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise _gone(path, error) from error


def _gone(path: str, error: OSError) -> UserError:
    return UserError(
        f"cannot compare {path} by its content: {error.strerror}; put it back, or leave out duplicates=true"
    )
