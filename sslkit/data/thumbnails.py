"""Small pictures of images and short names, for sheets and maps."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from sslkit.data.decoded_images import DecodedImages
from sslkit.data.images import Images

LETTERS = 60  # of a path


def small(images: Images, side: int) -> Images:
    """The images as squares of `side` pixels, in colour where they become that, to be drawn by `thumbnail`."""
    channels = 3 if images.channels in (1, 3, 4) else images.channels
    return images.at(image_size=side, channels=channels, fit="squash")


def thumbnail(images: Images, row: int, side: int) -> np.ndarray:
    """The whole image of a row of `small` as (h, w, 3) uint8, its longer side of `side` pixels; grey if it is gone."""
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


def captions_of(images: Images, index: Sequence[int]) -> list[str]:
    """The caption of each row: the path of its file or its row in the data, and its class if that is known."""
    captions = []
    for row in index:
        label = -1 if images.labels is None else int(images.labels[row])
        kind = images.classes[label] if images.classes and 0 <= label < len(images.classes) else ""
        name = _ending(images.path(row), 1 if kind else 2) if isinstance(images, DecodedImages) else f"row {row}"
        captions.append(f"{name}\n{f'class {kind}' if kind.isdigit() else kind}".rstrip())
    return captions


def _ending(path: str, parts: int) -> str:
    """The last parts of a path, at most 60 letters: its end tells files apart."""
    short = "/".join(Path(path).parts[-parts:])
    return short if len(short) <= LETTERS else f"…{short[1 - LETTERS :]}"
