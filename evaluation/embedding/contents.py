"""The stored bytes of images, by which copies of files are found without decoding them."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from evaluation.datasets._picked import PickedImages
from sslkit.data.images import Images
from sslkit.errors import UserError
from sslkit.files.reading import regular


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


@contextmanager
def _comparing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot compare {path} with other images: {error.strerror or error}; put it back") from error
