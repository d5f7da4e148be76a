"""FITS images that Pillow reads in part or otherwise: of several planes, more than 8 bits, or units of their own.

By hand: astropy takes 51 MB and 0.6 s of CPU to import, for the headers below.
"""

from math import nan, prod

import numpy as np

from sslkit.data.decode.fill import Spans
from sslkit.data.decode.large import Source, start_of
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.unreadable import UnreadableImage

_BLOCK, _CARD, _MOST = 2880, 80, 1000  # bytes of a block and of a card; blocks of a header
_PARTS = 16  # that are looked at for the first image: a round number above the usual handful
_TYPES = {8: ">u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}


def is_misread(source: Source) -> bool:
    """Return whether Pillow leaves out the planes or the units of a file of 8 bits. Raises UnreadableImage."""
    cards, _ = _header(source)
    return int(cards.get("NAXIS", 0)) > 2 or _units(cards) != (1, 0)


class FitsPlanes(Planes):
    """The first image in a FITS file, or its planes, in the file's units.

    Raises UnreadableImage for a file without an image.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        cards, self._begin = _header(source)
        self._shape = tuple(int(cards[f"NAXIS{axis}"]) for axis in range(int(cards["NAXIS"]), 0, -1))
        if len(self._shape) not in (2, 3):
            raise UnreadableImage(f"a FITS file whose first image has {len(self._shape)} axes")
        self._type = np.dtype(_TYPES[int(cards["BITPIX"])])
        self._scale, self._zero = _units(cards)
        self.itemsize = self._type.itemsize
        count = self._shape[0] if len(self._shape) == 3 else 1
        self.tagged = self._blank(cards)
        is_deep = self.itemsize > 1 or _units(cards) != (1, 0)
        super().__init__(self._shape[:-3:-1], count, colours=count, has_alpha=False, is_deep=is_deep)

    def _blank(self, cards: dict[str, str]) -> Spans:
        """The value without a meaning: NaN of floats, and of integers the stored BLANK, in the file's units."""
        if self._type.kind == "f":
            return ((nan, nan),)
        return ((int(cards["BLANK"]) * self._scale + self._zero,) * 2,) if "BLANK" in cards else ()

    def _read_planes(self) -> np.ndarray:
        length = prod(self._shape) * self._type.itemsize
        content = start_of(self._source, self._begin + length)[self._begin :]
        if len(content) < length:
            raise UnreadableImage("the FITS file is truncated")
        stored = np.frombuffer(content, self._type).reshape(self.count, *self._shape[-2:])
        upright = stored[:, ::-1]  # the first row is the lowest
        if (self._scale, self._zero) == (1, 0):
            return upright.astype(self._type.newbyteorder("="))
        values = upright.astype(np.float64) * self._scale + self._zero
        is_whole = self._type.kind in "iu" and self._scale.is_integer() and self._zero.is_integer()
        return values.astype(np.int64) if is_whole else values


def _units(cards: dict[str, str]) -> tuple[float, float]:
    """The factor of the stored values, and what is added to them."""
    return float(cards.get("BSCALE", 1)), float(cards.get("BZERO", 0))


def _header(source: Source) -> tuple[dict[str, str], int]:
    """The values of the first part that holds an image, by their names, and the place of its data.

    Telescopes leave the first part empty, and the image is an extension.
    """
    cards, position = _cards(source, 0)
    for _ in range(_PARTS):
        if int(cards.get("NAXIS", 0)) and cards.get("XTENSION", "IMAGE").strip("' ") == "IMAGE":
            return cards, position
        try:
            cards, position = _cards(source, position + _length(cards))
        except UnreadableImage:
            break
    raise UnreadableImage("a FITS file without an image in its parts")


def _length(cards: dict[str, str]) -> int:
    """Bytes of the data of a part, in whole blocks (FITS standard 4.0, equation 2)."""
    sides = [int(cards[f"NAXIS{axis}"]) for axis in range(1, int(cards.get("NAXIS", 0)) + 1)]
    count = prod(sides) + int(cards.get("PCOUNT", 0)) if sides else 0
    return -(-abs(int(cards["BITPIX"])) // 8 * int(cards.get("GCOUNT", 1)) * count // _BLOCK) * _BLOCK


def _cards(source: Source, start: int) -> tuple[dict[str, str], int]:
    """The values of the part whose header starts there, by their names, and the place of its data."""
    cards, content = {}, b""
    for begin in range(start, start + _BLOCK * _MOST, _CARD):
        if begin % _BLOCK == 0 and len(content := start_of(source, begin + _BLOCK)) < begin + _BLOCK:
            break
        name, _, rest = content[begin : begin + _CARD].decode("latin-1").partition("=")
        if name.strip() == "END":
            return cards, -(-(begin + _CARD) // _BLOCK) * _BLOCK
        cards[name.strip()] = rest.partition("/")[0].strip()
    raise UnreadableImage("a FITS file whose header has no end")
