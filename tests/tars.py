"""Tar files of digits for tests of shards."""

import io
import tarfile
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sslkit.data.sources.named import open_images

DIGITS = open_images("digits")


def picture(row: int, kind: str = "png") -> bytes:
    content = io.BytesIO()
    Image.fromarray(DIGITS.pixels[row, 0]).save(content, kind)
    return content.getvalue()


def tar(path: Path, members: Mapping[str, bytes] | Iterable[tuple[str, bytes]], **options: Any) -> Path:
    """options: of tarfile.open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", **options) as opened:
        for name, content in members.items() if isinstance(members, Mapping) else members:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            opened.addfile(about, io.BytesIO(content))
    return path


def pngs(*names: str) -> list[tuple[str, bytes]]:
    """Members: the next digit for each name of an image, and the text behind = for each other."""
    found, row = [], 0
    for name, _, text in (name.partition("=") for name in names):
        found.append((name, text.encode() if text else picture(row)))
        row += not text
    return found


def opened(path: Path | str, **options: Any) -> tuple[Any, list[str]]:
    """The images of shards, and what was said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("ignore")  # of files that other tests left open, whenever they are collected
        warnings.simplefilter("always", UserWarning)
        images = open_images(f"shards:{path}", **{"image_size": 8, "cache": None, **options})
    return images, [str(one.message) for one in said]


def rows_read(images: Any) -> list[int]:
    """The digits that are read, as rows of the data set."""
    pixels = images.__getitems__(list(range(len(images))))["images"].numpy()
    return [int(np.flatnonzero((DIGITS.pixels == one).all((1, 2, 3)))[0]) for one in pixels]


def names(images: Any) -> list[str]:
    """The names of the images without their shard."""
    return [images.image_name(row).partition(".tar/")[2] for row in range(len(images))]


def labels(images: Any) -> list[str | None] | None:
    """The class of each image by name."""
    if images.labels is None:
        return None
    return [images.classes[label] if label >= 0 else None for label in images.labels.tolist()]
