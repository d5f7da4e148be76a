"""The stored bytes of images, and the images that occur in two splits by these, without decoding them."""

import hashlib
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from evaluation.datasets._listed import PickedImages
from evaluation.datasets.base import Split
from sslkit.data.arrays import ArrayImages
from sslkit.data.images import Images
from sslkit.errors import UserError
from sslkit.files.reading import regular

Digests = list[tuple[bytes, str]]  # (digest of the content, id of the image)


@dataclass(frozen=True)
class Content:
    """The stored bytes of an image. path: for messages. size: of the bytes, known without reading files and shards."""

    path: str
    size: int
    stored: Callable[[], bytes]

    def read(self) -> bytes:
        """Return the bytes. Raises UserError for a file that cannot be read."""
        with _comparing(self.path):
            return self.stored()


def content_of(images: Images, row: int) -> Content | None:
    """Return the content of an image in a file, a shard or a Hugging Face data set; None if it is made of an array.

    Raises UserError for a file that cannot be read.
    """
    if isinstance(images, PickedImages):
        return content_of(images.images, int(images.rows[row]))
    path = images.path(row) if hasattr(images, "path") else ""
    with _comparing(path):
        if hasattr(images, "content"):  # of files, shards and Hugging Face data sets
            return Content(path, images.content_size(row), partial(images.content, row))
        if os.path.exists(path):
            return Content(path, os.path.getsize(path), lambda: regular(Path(path)).read_bytes())
    return None


def overlap(a: Split, b: Split, *, progress: bool = True) -> list[tuple[str, str]]:
    """Return the images of `b` that are also in `a`: sorted pairs (id in a, id in b), one pair per image of `b`.

    Files, and images in shards and Hugging Face data sets, are compared by their bytes, arrays by their pixels; a
    re-encoded image is not found. Only files whose size occurs in both splits are read, each once.
    progress: show a bar on a terminal.
    Raises UserError for files against arrays, and for a file that no longer exists.
    """
    arrays = isinstance(a.images, ArrayImages)
    if arrays != isinstance(b.images, ArrayImages):
        raise UserError(f"{a.name} ({a.split}), {b.name} ({b.split}): files and arrays cannot be compared by content")
    in_a, in_b = (_of_arrays(a), _of_arrays(b)) if arrays else _of_files(a, b, progress)
    first: dict[bytes, str] = {}
    for digest, name in sorted(in_a, key=lambda pair: pair[1]):
        first.setdefault(digest, name)
    return sorted((first[digest], name) for digest, name in in_b if digest in first)


def _of_arrays(split: Split) -> Digests:
    pixels = split.images.pixels
    shape = repr(pixels.shape[1:]).encode()
    content = (hashlib.sha256(shape + np.ascontiguousarray(image).tobytes()).digest() for image in pixels)
    return list(zip(content, map(str, split.ids), strict=True))


def _of_files(a: Split, b: Split, progress: bool) -> tuple[Digests, Digests]:
    from tqdm import tqdm

    sizes = [_by_size(split) for split in (a, b)]
    shared = sizes[0].keys() & sizes[1].keys()
    rows = [[row for size in shared for row in by_size[size]] for by_size in sizes]
    digests: tuple[Digests, Digests] = [], []
    hidden = not (progress and sys.stderr.isatty())
    with tqdm(total=sum(map(len, rows)), desc="overlap", unit=" files", leave=False, disable=hidden) as bar:
        for split, some, of_split in zip((a, b), rows, digests, strict=True):
            for row in some:
                of_split.append((hashlib.sha256(_content(split, row).read()).digest(), str(split.ids[row])))
                bar.update()
    return digests


def _by_size(split: Split) -> dict[int, list[int]]:
    by_size = defaultdict(list)
    for row in range(len(split)):
        by_size[_content(split, row).size].append(row)
    by_size.pop(0, None)  # rows without an image
    return by_size


def _content(split: Split, row: int) -> Content:
    content = content_of(split.images, row)
    if content is None:
        path = getattr(split.images, "path", lambda row: f"image {row}")(row)
        raise UserError(f"{path} of {split.name} is not a file on the disk, so it cannot be compared")
    return content


@contextmanager
def _comparing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot compare {path} with other images: {error.strerror or error}; put it back") from error
