"""Several channels of more than 8 bits in files that Pillow opens with 8.

In PNG and TIFF Pillow gives the upper 8 of 16 bits: both bytes are read, one after the other, since it can be asked for
the first byte of each number, or for the second. Those of JPEG 2000 overflow in Pillow, where white becomes black.
"""

import struct
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from sslkit.data.decode.large import Source, open_unlimited, release, start_of
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.tiff import NODATA, ORIENTATION, QUARTER_TURN, is_unsigned, nodata_of, orientation_of
from sslkit.data.decode.unreadable import MissingPackage, UnreadableImage

_TWO = ("RGB;16", "RGBA;16", "RGBa;16", "RGBX;16")  # how Pillow decodes, before a letter for the order of the bytes
_GRAY = "LA;16B"  # which is as long as RGBA of 8 bits
_SIZE = b"\xff\x4f\xff\x51"  # in JPEG 2000: the start of the code, and the mark of its size
_HEAD = 2**16  # bytes that have it
_SIDES = 8  # from there: width and height, and what is left out of them
_BITS = 42  # from there: the bits of the first channel, less one
_DEFINED = b"cdef"  # before the code: what the channels are
_OPACITY = (1, 2)  # of the type of a channel; 2: the others were multiplied by it


def halves_of(image: Image.Image, source: Source) -> Planes | None:
    """The planes of a PNG or TIFF of 16-bit colours that Pillow has opened; None of others."""
    mode = mode_of(image.tile[0]) if image.tile else ""
    if mode == _GRAY:
        return GrayHalves(image, source)
    return ColourHalves(image, source, mode[-1]) if mode[:-1] in _TWO else None


class _Halves(Planes):
    def __init__(self, image: Image.Image, source: Source, colours: int, has_alpha: bool) -> None:
        super().__init__(size_as_shown(image), colours + has_alpha, colours=colours, has_alpha=has_alpha, is_deep=True)
        self._image, self._source = image, source
        self.orientation = orientation_in(image)
        self.tagged = nodata_of(image.tag_v2.get(NODATA)) if image.format == "TIFF" else ()

    def close(self) -> None:
        self._image.close()

    def seek(self, page: int) -> None:
        self._image.seek(page)
        self.size = size_as_shown(self._image)

    def _decode(self, mode: str) -> np.ndarray:
        """Decode as if the pixels were of this mode."""
        with open_unlimited(self._source) as image:  # of a size that was allowed
            image.seek(self._image.tell())
            image.tile = [with_mode(tile, mode) for tile in image.tile]
            return np.asarray(image).astype(np.uint16)


class ColourHalves(_Halves):
    """RGB, with opacity or a plane that is not read. order: of the bytes, B, L or N, that of this machine."""

    def __init__(self, image: Image.Image, source: Source, order: str) -> None:
        super().__init__(image, source, 3, image.mode == "RGBA")
        self.is_associated = mode_of(image.tile[0]).startswith("RGBa")
        self._is_big = {"B": "big", "L": "little", "N": sys.byteorder}[order] == "big"

    def _read_planes(self) -> np.ndarray:
        name = mode_of(self._image.tile[0])[:-1].replace("a", "A")  # Pillow divides the upper bytes of RGBa alone
        first, second = self._decode(f"{name}B"), self._decode(f"{name}L")
        high, low = (first, second) if self._is_big else (second, first)
        return (high << 8 | low).transpose(2, 0, 1)


class GrayHalves(_Halves):
    """Gray with opacity, in PNG."""

    def __init__(self, image: Image.Image, source: Source) -> None:
        super().__init__(image, source, 1, True)

    def _read_planes(self) -> np.ndarray:
        halves = self._decode("RGBA")
        return np.stack([halves[..., 0] << 8 | halves[..., 1], halves[..., 2] << 8 | halves[..., 3]])


class PlainPlanes(Planes):
    """The bands of an image that Pillow has opened: gray of more than 8 bits, or gray or RGB and another one behind."""

    def __init__(self, image: Image.Image) -> None:
        is_deep = len(image.getbands()) == 1
        count = 1 if is_deep else 2 if image.mode.startswith("L") else 4
        super().__init__(size_as_shown(image), count, colours=count - (not is_deep), has_alpha=False, is_deep=is_deep)
        self.spare, self.itemsize, self.orientation = count - self.colours, 4 if is_deep else 1, orientation_in(image)
        self.tagged = nodata_of(image.tag_v2.get(NODATA)) if is_deep and image.format == "TIFF" else ()
        self._image = image
        tiles = getattr(image, "tile", None)  # none of an image in memory
        if tiles and (mode := mode_of(tiles[0])).startswith("RGBa"):  # else Pillow divides by the last band
            image.tile = [with_mode(tile, mode.replace("a", "A")) for tile in tiles]

    def close(self) -> None:
        self._image.close()

    def _read_planes(self) -> np.ndarray:
        image = self._image.convert("RGBA") if self._image.mode == "PA" else self._image
        values = np.asarray(image)
        if self.count > 1:
            return values.transpose(2, 0, 1)
        return (values.view(np.uint32) if is_unsigned(image) else values)[None]


def mode_of(tile: Sequence[Any]) -> str:
    return tile[3] if isinstance(tile[3], str) else str(tile[3][0]) if tile[3] else ""


def with_mode(tile: Sequence[Any], mode: str) -> Any:
    settings = mode if isinstance(tile[3], str) else (mode, *tile[3][1:])
    return tile._replace(args=settings) if hasattr(tile, "_replace") else (*tile[:3], settings)


def size_as_shown(image: Image.Image) -> tuple[int, int]:
    """Width and height of the pixels as Pillow gives them."""
    return image.size[::-1] if image.format == "TIFF" and orientation_of(image) >= QUARTER_TURN else image.size


def orientation_in(image: Image.Image) -> int:
    """The orientation of the pixels as Pillow gives them."""
    if image.format == "TIFF":
        return 1
    exif = Image.Exif()
    exif.load(image.info.get("exif"))  # from the header; `getexif` decodes a whole PNG
    return exif.get(ORIENTATION, 1)


def deep_jpeg2000(image: Image.Image, source: Source) -> Planes | None:
    """The planes of a JPEG 2000 of deep colours that Pillow has opened; None of others. Raises MissingPackage."""
    if len(image.getbands()) == 1 or _bits(source) <= 8:
        return None
    try:
        import imagecodecs  # noqa: F401
    except ImportError as error:
        raise MissingPackage("JPEG 2000 with colours of more than 8 bits", "imagecodecs", "tiff") from error
    release(image, source)
    if _size(source) != image.size:
        raise UnreadableImage(f"its header says {image.size} pixels, and its code {_size(source)}")
    return DeepJpeg2000(image.size, len(image.getbands()), source)


class DeepJpeg2000(Planes):
    """Planes of 9 to 16 bits."""

    def __init__(self, size: tuple[int, int], count: int, source: Source) -> None:
        has_alpha = count in (2, 4) and tells_opacity(source)
        super().__init__(size, count, colours=count - (count in (2, 4)), has_alpha=has_alpha, is_deep=True)
        self._source, self.spare = source, count - self.colours - has_alpha

    def _read_planes(self) -> np.ndarray:
        import imagecodecs

        return imagecodecs.jpeg2k_decode(start_of(self._source, -1)).transpose(2, 0, 1)


def _size(source: Source) -> tuple[int, int]:
    """Width and height in the code, which is what is decoded."""
    head = start_of(source, _HEAD)
    right, below, left, above = struct.unpack_from(">4I", head, head.find(_SIZE) + _SIDES)
    return right - left, below - above


def tells_opacity(source: Source) -> bool:
    """Return whether a JPEG 2000 says that a channel is opacity; Pillow takes the last of two or four for it."""
    head = start_of(source, _HEAD)
    position = head[: max(0, head.find(_SIZE))].find(_DEFINED)
    if position < 0:
        return False
    (count,) = struct.unpack_from(">H", head, position + len(_DEFINED))
    start = position + len(_DEFINED) + 2
    types = [struct.unpack_from(">3H", head, at)[1] for at in range(start, start + 6 * min(count, 4), 6)]
    return any(kind in _OPACITY for kind in types)


def _bits(source: Source) -> int:
    head = start_of(source, _HEAD)
    position = head.find(_SIZE)
    return (head[position + _BITS] & 0x7F) + 1 if 0 <= position < len(head) - _BITS else 8
