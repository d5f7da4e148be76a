"""Small pictures of images, for sheets and maps."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from evaluation.embedding.sources import Part, locate
from sslkit.data.images import Images


def thumbnails(parts: Sequence[Part], paths: Sequence[str], rows: Sequence[int], side: int) -> list[np.ndarray]:
    """Return the whole images of these rows as (h, w, 3) uint8, with a longer side of `side` pixels.

    parts, paths: of an `Embedding`. An image that cannot be read any more is grey.
    """
    where = list(locate(parts, paths))
    small = {}
    for opened in parts:
        images = opened.split.images
        channels = 3 if images.channels in (1, 3, 4) else images.channels  # RGB where they become that
        small[id(opened)] = images.at(image_size=side, channels=channels, fit="squash")
    return [_thumbnail(small[id(opened)], part_row, side) for opened, part_row in (where[row] for row in rows)]


def _thumbnail(images: Images, row: int, side: int) -> np.ndarray:
    batch = images.__getitems__([row])
    if int(batch["index"][0]) != row:
        return np.full((side, side, 3), 200, np.uint8)
    planes, aspect = batch["images"][0].numpy(), float(batch["aspect"][0])
    planes = planes[[0, 1, 2] if len(planes) >= 3 else [0, 0, 0]]  # of many channels the first
    square = np.ascontiguousarray(planes.transpose(1, 2, 0))
    width, height = (side, side / aspect) if aspect >= 1 else (side * aspect, side)
    shape = max(1, round(width)), max(1, round(height))
    return np.asarray(Image.fromarray(square).resize(shape, Image.Resampling.BICUBIC))


def shorten(name: str, most: int) -> str:
    """Return a name of at most `most` characters; its end stays, as it tells files apart."""
    name = name.encode(errors="replace").decode()  # a file name may have bytes that are no text
    return name if len(name) <= most else f"…{name[1 - most :]}"
