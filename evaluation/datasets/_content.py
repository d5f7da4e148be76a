"""The bytes of an image as they are stored, to compare images without decoding them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from evaluation.datasets._picked import PickedImages
from sslkit.data.images import Images
from sslkit.errors import UserError
from sslkit.files.regular_files import regular


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
    path = images.path(row) if hasattr(images, "path") else ""
    if hasattr(images, "content"):  # of files, shards and Hugging Face data sets
        read, size = partial(images.content, row), partial(images.content_size, row)
    elif os.path.exists(path):
        read, size = partial(_read, path), partial(os.path.getsize, path)
    else:
        return None
    try:
        return Content(partial(_or_refused, read, path), size())
    except OSError as error:
        raise _unread(path, error) from error


def _read(path: str) -> bytes:
    with open(regular(path), "rb") as file:
        return file.read()


def _or_refused(read: Callable[[], bytes], path: str) -> bytes:
    try:
        return read()
    except OSError as error:
        raise _unread(path, error) from error


def _unread(path: str, error: OSError) -> UserError:
    return UserError(f"cannot compare {path} with other images: {error.strerror or error}; put it back")
