"""JPEG 2000 with several channels of more than 8 bits, whose bytes overflow in Pillow: white becomes black."""

import struct
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image

from sslkit.data.decode.large import start_of
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.unreadable import MissingPackage, UnreadableImage

_SIZE = b"\xff\x4f\xff\x51"  # the start of the code, and the mark of its size
_HEAD = 2**16  # bytes that have it
_SIDES = 8  # from there: width and height, and what is left out of them
_BITS = 42  # from there: the bits of the first channel, less one


def deep_jpeg2000(image: Image.Image, source: str | Path | IO[bytes]) -> Planes | None:
    """The planes of such an image that Pillow has opened; None of others. Raises MissingPackage."""
    if len(image.getbands()) == 1 or _bits(source) <= 8:
        return None
    try:
        import imagecodecs  # noqa: F401
    except ImportError as error:
        raise MissingPackage("JPEG 2000 with colours of more than 8 bits", "imagecodecs", "tiff") from error
    image.close()
    if _size(source) != image.size:
        raise UnreadableImage(f"its header says {image.size} pixels, and its code {_size(source)}")
    return DeepJpeg2000(image.size, len(image.getbands()), source)


class DeepJpeg2000(Planes):
    """Planes of 9 to 16 bits."""

    def __init__(self, size: tuple[int, int], count: int, source: str | Path | IO[bytes]) -> None:
        has_alpha = count in (2, 4)
        super().__init__(size, count, colours=count - has_alpha, has_alpha=has_alpha, is_deep=True)
        self._source = source

    def _read(self) -> np.ndarray:
        import imagecodecs

        if isinstance(self._source, (str, Path)):
            return imagecodecs.jpeg2k_decode(Path(self._source).read_bytes()).transpose(2, 0, 1)
        self._source.seek(0)
        return imagecodecs.jpeg2k_decode(self._source.read()).transpose(2, 0, 1)


def _size(source: str | Path | IO[bytes]) -> tuple[int, int]:
    """Width and height in the code, which is what is decoded."""
    head = start_of(source, _HEAD)
    right, below, left, above = struct.unpack_from(">4I", head, head.find(_SIZE) + _SIDES)
    return right - left, below - above


def _bits(source: str | Path | IO[bytes]) -> int:
    head = start_of(source, _HEAD)
    place = head.find(_SIZE)
    return (head[place + _BITS] & 0x7F) + 1 if 0 <= place < len(head) - _BITS else 8
