"""Several channels of 16 bits in PNG and TIFF, of which Pillow gives the upper 8 bits: both bytes, one after the other.

Pillow can be asked for the first byte of each number, or for the second.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image

from sslkit.data.decode.large import identified
from sslkit.data.decode.planes import Planes

_TWO = ("RGB;16", "RGBA;16", "RGBX;16")  # how Pillow decodes, before a letter for the order of the bytes
_GRAY = "LA;16B"  # which is as long as RGBA of 8 bits
_ORIENTATION = 0x0112


def halves_of(image: Image.Image, source: str | Path | IO[bytes]) -> Planes | None:
    """The planes of such an image, which Pillow has opened; None of others."""
    mode = _mode(image.tile[0]) if image.tile else ""
    if mode == _GRAY:
        return GrayHalves(image, source)
    return ColourHalves(image, source, mode[-1]) if mode[:-1] in _TWO else None


class _Halves(Planes):
    def __init__(self, image: Image.Image, source: str | Path | IO[bytes], colours: int, has_alpha: bool) -> None:
        super().__init__(image.size, colours + has_alpha, colours=colours, has_alpha=has_alpha, is_deep=True)
        self._image, self._source = image, source
        self.n_frames = getattr(image, "n_frames", 1)
        self.orientation = _orientation(image)

    def close(self) -> None:
        self._image.close()

    def seek(self, page: int) -> None:
        self._image.seek(page)

    def _decoded(self, mode: str) -> np.ndarray:
        """Decode as if the pixels were of this mode."""
        with identified(self._source) as image:  # of a size that was allowed
            image.seek(self._image.tell())
            image.tile = [_with_mode(tile, mode) for tile in image.tile]
            return np.asarray(image).astype(np.uint16)


class ColourHalves(_Halves):
    """RGB, with opacity or a plane that is not read. order: of the bytes, B, L or N, that of this machine."""

    def __init__(self, image: Image.Image, source: str | Path | IO[bytes], order: str) -> None:
        super().__init__(image, source, 3, image.mode == "RGBA")
        self._is_big = {"B": "big", "L": "little", "N": sys.byteorder}[order] == "big"

    def _read(self) -> np.ndarray:
        name = _mode(self._image.tile[0])[:-1]
        first, second = self._decoded(f"{name}B"), self._decoded(f"{name}L")
        high, low = (first, second) if self._is_big else (second, first)
        return (high << 8 | low).transpose(2, 0, 1)


class GrayHalves(_Halves):
    """Gray with opacity, in PNG."""

    def __init__(self, image: Image.Image, source: str | Path | IO[bytes]) -> None:
        super().__init__(image, source, 1, True)

    def _read(self) -> np.ndarray:
        halves = self._decoded("RGBA")
        return np.stack([halves[..., 0] << 8 | halves[..., 1], halves[..., 2] << 8 | halves[..., 3]])


def _mode(tile: Sequence[Any]) -> str:
    return tile[3] if isinstance(tile[3], str) else str(tile[3][0]) if tile[3] else ""


def _with_mode(tile: Sequence[Any], mode: str) -> Any:
    settings = mode if isinstance(tile[3], str) else (mode, *tile[3][1:])
    return tile._replace(args=settings) if hasattr(tile, "_replace") else (*tile[:3], settings)


def _orientation(image: Image.Image) -> int:
    if image.format == "TIFF":
        return image.tag_v2.get(_ORIENTATION, 1)
    exif = Image.Exif()
    exif.load(image.info.get("exif"))  # from the header; `getexif` decodes a whole PNG
    return exif.get(_ORIENTATION, 1)
