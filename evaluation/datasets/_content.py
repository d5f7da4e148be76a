"""The bytes of an image as they are stored, to compare images without decoding them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from evaluation.datasets._picked import PickedImages
from sslkit.data.images import Images
from sslkit.errors import UserError
from sslkit.regular_files import regular


@dataclass(frozen=True)
class Content:
    """read: returns the bytes. size: their number, known without reading files and shards."""

    read: Callable[[], bytes]
    size: int


def content_of(images: Images, row: int) -> Content | None:
    """The content of an image in a file, a shard or a Hugging Face data set; None of one that is made of an array.

    Raises UserError for a file that cannot be read.
    """
    if isinstance(images, PickedImages):
        return content_of(images.images, int(images.rows[row]))
    if hasattr(images, "content"):  # of shards and Hugging Face data sets
        return Content(partial(images.content, row), images.content_size(row))
    path = images.path(row) if hasattr(images, "path") else ""
    if not os.path.exists(path):
        return None
    try:
        return Content(partial(_read, path), os.stat(path).st_size)
    except OSError as error:
        raise _unread(path, error) from error


def _read(path: str) -> bytes:
    try:
        with open(regular(path), "rb") as file:
            return file.read()
    except OSError as error:
        raise _unread(path, error) from error


def _unread(path: str, error: OSError) -> UserError:
    return UserError(f"cannot compare {path} with other images: {error.strerror}; put it back")
