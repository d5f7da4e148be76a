"""The pages of a file, counted by what the file holds: a header can tell any number of them."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from sslkit.data.decode import dicom, tiff
from sslkit.data.decode.budget import PAGES_IN_A_ROW
from sslkit.data.decode.large import Source, start_of

_ONE_PAGE = ("MPO", "PSD", "ICO", "CUR")  # what stands behind the first picture is no other one
_PNG_START, _CHUNK = 8, struct.Struct(">I4s")
_RIFF_START, _PART = 12, struct.Struct("<4sI")
_GIF_START, _EXTENSION, _PICTURE = 13, 0x21, 0x2C  # bytes of a header, and the marks of its blocks (GIF89a)


@dataclass(frozen=True)
class Pages:
    """places: (P, 2) int64 number of each page in the file, from 0, and the byte where it begins, 0 where not known.

    total: pages in the file; more than P where each needs all before it, and there are too many.
    """

    places: np.ndarray
    total: int


ONE_PAGE = Pages(np.array([[0, 0]]), 1)


def pages_of(picture: Any, source: Source) -> Pages:
    """The pages of an open picture, without smaller copies and masks of others. It is left at one of them."""
    if isinstance(picture, tiff.TiffPlanes):
        return _all(picture.places())
    if isinstance(picture, dicom.DicomPlanes):
        return _all(places) if (places := picture.places()) is not None else _in_a_row(picture.frames())
    image = getattr(picture, "_image", picture)
    form = getattr(image, "format", None)
    header = 0 if form in ("TIFF", "GIF") else getattr(image, "n_frames", 1)  # these count them, in square time
    if form == "TIFF":
        return _all(tiff.places(source))
    if form in _ONE_PAGE:
        return _in_a_row(1)
    if form == "GIF":
        return _in_a_row(_gif_frames(start_of(source, -1)))
    if form in ("PNG", "WEBP"):
        kinds = list(_kinds_of_png(start_of(source, -1)) if form == "PNG" else _kinds_of_webp(start_of(source, -1)))
        return _in_a_row(min(header, _count_frames(kinds)))
    return _in_a_row(_seekable(image, header, len(start_of(source, -1))))


def _all(places: np.ndarray) -> Pages:
    return Pages(places, len(places))


def _in_a_row(total: int) -> Pages:
    total = max(1, total)
    numbers = np.arange(min(total, PAGES_IN_A_ROW))
    return Pages(np.stack([numbers, np.zeros_like(numbers)], 1), total)


def _count_frames(kinds: list[bytes]) -> int:
    """The frames by the kinds of a file's parts; of PNG a first picture that is no frame counts, too."""
    if b"ANMF" in kinds:
        return kinds.count(b"ANMF")
    frames = kinds.count(b"fcTL")
    is_apart = frames > 0 and b"IDAT" in kinds and kinds.index(b"IDAT") < kinds.index(b"fcTL")
    return max(1, frames + is_apart)


def _kinds_of_png(content: bytes) -> Iterator[bytes]:
    position = _PNG_START
    while position + _CHUNK.size <= len(content):
        length, kind = _CHUNK.unpack_from(content, position)
        yield kind
        position += length + 12


def _kinds_of_webp(content: bytes) -> Iterator[bytes]:
    position = _RIFF_START
    while position + _PART.size <= len(content):
        kind, length = _PART.unpack_from(content, position)
        yield kind
        position += _PART.size + length + length % 2


def _gif_frames(content: bytes) -> int:
    """The number of pictures between a GIF's blocks."""
    frames, position = 0, _GIF_START + _table(content, 10)
    while position + 10 < len(content):
        if content[position] == _PICTURE:
            frames += 1
            position = _behind(content, position + 11 + _table(content, position + 9))
        elif content[position] == _EXTENSION:
            position = _behind(content, position + 2)
        elif content[position] == 0:  # between blocks, as some programs leave it
            position += 1
        else:
            break
    return frames


def _table(content: bytes, place: int) -> int:
    """Bytes of the colours that the flags at a place tell of."""
    flags = content[place] if place < len(content) else 0
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def _behind(content: bytes, position: int) -> int:
    """The place behind blocks that each begin with their length, up to an empty one."""
    while position < len(content) and content[position]:
        position += content[position] + 1
    return position + 1


def _seekable(image: Image.Image, header: int, length: int) -> int:
    """The number of pages, of those that a header tells, that can be sought and lie within the file."""
    for page in range(min(header, PAGES_IN_A_ROW)):
        try:
            image.seek(page)
        except EOFError:
            return page
        if any(tile[2] >= length for tile in getattr(image, "tile", ())):
            return page
    return header if header <= PAGES_IN_A_ROW else PAGES_IN_A_ROW
