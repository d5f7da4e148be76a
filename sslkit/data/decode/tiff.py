"""TIFF files: which of them Pillow reads as they are meant, and the planes of the others.

tifffile decodes them; directories are read by hand, since a file can declare more pages than it has.
"""

import struct
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sslkit.data.decode.fill import Spans
from sslkit.data.decode.large import Source, release, rewound, start_of
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.unreadable import MissingPackage, UnreadableImage

STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # the last two: BigTIFF
_KIND, _BITS, _PHOTOMETRIC, _SAMPLES, _PLANAR, _EXTRA, _FORMAT = 254, 258, 262, 277, 284, 338, 339  # tags of TIFF 6.0
ORIENTATION, QUARTER_TURN = 274, 5  # of EXIF, too; the first of the orientations that swap height and width
NODATA = 42113  # the tag of GDAL
_COMPRESSION, _NEW = 259, (34925, 50000, 50001)  # LZMA, ZSTD, WebP: not in every Pillow
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB = 0, 1, 2  # of _PHOTOMETRIC
_NO_PICTURES = 1 | 4  # of _KIND: smaller copies and masks of other pages
_ALPHA, _ASSOCIATED = {1, 2}, 1  # of _EXTRA
_SIGNED, _APART = 2, 2  # of _FORMAT and _PLANAR
HEADER, _MOST_ENTRIES = 16, 2**12  # bytes, and entries of a directory
_FEW_ENTRIES = 64  # values of a tag that are read with it: larger ones are offsets of tiles, which only decoding needs
_PACKED = (1, 5, 8, 32773, 32946)  # of _COMPRESSION
_SHORT, _LONG = 3, 4  # of an entry's form: 16 bits, and 32, as `_KIND` has
_ROOM = 2**24  # values of a tile beyond the image: a broken header would ask for any memory
_READ = ("MINISWHITE", "MINISBLACK", "RGB", "YCBCR", "CFA", "LINEAR_RAW")  # JPEG's colours become RGB


def planes_of(image: Image.Image, source: Source, channels: int | None) -> Planes | None:
    """The planes of a TIFF that Pillow has opened, and would read in part or not as it is meant; None of others.

    channels: that are wanted. Raises MissingPackage and UnreadableImage.
    """
    tags = image.tag_v2
    samples = tags.get(_SAMPLES, 1)
    bands = tags.get(_PHOTOMETRIC) in (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB) and not set(tags.get(_EXTRA, ())) & _ALPHA
    wants_bands = bands and samples not in (1, 3) and channels == samples
    wants_pages = samples == 1 and channels not in (None, 1, 3, 4)
    is_needed = wants_bands or wants_pages or _is_misread(tags)
    if not is_needed and not (tags.get(_COMPRESSION) in _NEW and find_spec("tifffile")):
        return None
    release(image, source)
    return open_tiff(source, channels)


def spare_of(image: Image.Image) -> int:
    """The number of planes of a TIFF that Pillow does not read."""
    return max(0, image.tag_v2.get(_SAMPLES, 1) - len(image.getbands())) if image.format == "TIFF" else 0


def is_unsigned(image: Image.Image) -> bool:
    """Return whether Pillow gives the 32 bits of a TIFF as signed numbers that are none."""
    return image.format == "TIFF" and image.mode == "I" and image.tag_v2.get(_FORMAT, (1,))[0] == 1


def orientation_of(image: Image.Image) -> int:
    """The orientation by which the size of a TIFF that Pillow has opened is still to be turned.

    Pillow turns the pixels when it loads them, whatever tells the orientation, and the size before, if the tag does.
    """
    return 1 if ORIENTATION in image.tag_v2 else image.getexif().get(ORIENTATION, 1)


def directories(source: Source, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the place of each page's directory in a file, from the one at `start` on (0: the first), and its kind.

    Ends where they lead back, or out of the file.
    """
    head = start_of(source, HEADER)
    order = "<" if head[:2] == b"II" else ">"
    number, entry, pointer = ("Q", "HHQI4x", "Q") if _is_big(head) else ("H", "HHII", "I")
    count_of, entry_of, next_of = (struct.Struct(order + form) for form in (number, entry, pointer))
    seen: set[int] = set()
    with open(source, "rb") if isinstance(source, (str, Path)) else nullcontext(source) as file:
        try:
            offset = start or next_of.unpack_from(head, 8 if _is_big(head) else 4)[0]
            while offset and offset not in seen:
                seen.add(offset)
                file.seek(offset)
                (count,) = count_of.unpack(file.read(count_of.size))
                if count > _MOST_ENTRIES:
                    return
                content = file.read(count * entry_of.size + next_of.size)
                (after,) = next_of.unpack_from(content, count * entry_of.size)
                yield offset, _kind(content, count, entry_of)
                offset = after
        except struct.error:  # the file ends there
            return


def _kind(content: bytes, count: int, entry: struct.Struct) -> int:
    """The value of `_KIND` among the entries, which stand in their tags' order; 0 without it."""
    for number in range(count):
        tag, form, _, value = entry.unpack_from(content, number * entry.size)
        if tag >= _KIND:
            return value if tag == _KIND and form == _LONG else 0
    return 0


def places(source: Source) -> np.ndarray:
    """(P, 2) int64 number and directory of each page that is a picture of its own; the first one if none is."""
    pages = list(directories(source))
    pictures = [(number, offset) for number, (offset, kind) in enumerate(pages) if not kind & _NO_PICTURES]
    return np.array(pictures or [(0, 0)], np.int64)


def is_plain(source: Source, channels: int | None) -> bool:
    """Return whether a TIFF has one page, of a kind that Pillow reads alone and without room for more than its pixels.

    Gray or RGB of 8 bits, or gray of 16; as it is, or packed by LZW, deflate or PackBits. channels: that are wanted.
    """
    head = start_of(source, HEADER)
    order = "<" if head[:2] == b"II" else ">"
    entry, offset = struct.Struct(order + "HHI4s"), struct.unpack_from(order + "I", head + bytes(8), 4)[0]
    with open(source, "rb") if isinstance(source, (str, Path)) else nullcontext(source) as file:
        file.seek(offset)
        count = int.from_bytes(file.read(2), "little" if order == "<" else "big")
        content = file.read(count * entry.size + 4) if count <= _FEW_ENTRIES else b""
    if _is_big(head) or len(content) < count * entry.size + 4 or any(content[-4:]):
        return False
    entries = [entry.unpack_from(content, number * entry.size) for number in range(count)]
    tags = {tag: struct.unpack(order + ("H2x" if form == _SHORT else "I"), value)[0] for tag, form, _, value in entries}
    samples = tags.get(_SAMPLES, 1)
    return (
        (tags.get(_PHOTOMETRIC), samples) in ((_BLACK_IS_ZERO, 1), (_RGB, 3))
        and (samples == 3 or (tags.get(_BITS) in (8, 16) and tags.get(_FORMAT, 1) == 1))
        and tags.get(_COMPRESSION, 1) in _PACKED
        and tags.get(_PLANAR, 1) == 1
        and not set(tags) & ({_EXTRA, _FORMAT} if samples == 3 else {_EXTRA})
        and channels in (None, 1, 3, 4)
    )


def point_to(head: bytes, place: int) -> bytes:
    """The first `HEADER` bytes of a file as if its first page had its directory at this place."""
    form = ("<" if head[:2] == b"II" else ">") + ("Q" if _is_big(head) else "I")
    start = 8 if _is_big(head) else 4
    return head[:start] + struct.pack(form, place) + head[start + struct.calcsize(form) :]


def _is_big(head: bytes) -> bool:
    return head[2:4] in (b"+\0", b"\0+")


def nodata_of(written: Any) -> Spans:
    """The number in GDAL's tag of pixels without a value; () without one."""
    try:
        return () if written is None else ((float(str(written).strip("\0 ")),) * 2,)
    except ValueError:
        return ()


def _is_misread(tags: Any) -> bool:
    bits, samples = max(tags.get(_BITS, (1,))), tags.get(_SAMPLES, 1)
    photometric, is_signed = tags.get(_PHOTOMETRIC), tags.get(_FORMAT, (1,))[0] == _SIGNED
    if samples == 1:
        return (bits == 8 and is_signed) or (bits > 8 and photometric == _WHITE_IS_ZERO)
    if samples == 2 and photometric in (_WHITE_IS_ZERO, _BLACK_IS_ZERO) and not set(tags.get(_EXTRA, ())) & _ALPHA:
        return True  # the second plane is left out
    is_mixed_up = bits > 8 or samples == 2 or _ASSOCIATED in tags.get(_EXTRA, ())
    return is_signed or (tags.get(_PLANAR) == _APART and is_mixed_up)


def open_tiff(source: Source, channels: int | None) -> Planes:
    """Open any TIFF. channels: pages of one plane are read together as so many. Raises MissingPackage."""
    try:
        import tifffile
    except ImportError as error:
        raise MissingPackage("such a TIFF, which Pillow cannot read as it is meant,", "tifffile", "tiff") from error
    file = tifffile.TiffFile(rewound(source), name="image", _multifile=False)
    try:
        return TiffPlanes(file, source, channels)
    except BaseException:
        file.close()
        raise


class TiffPlanes(Planes):
    """The planes of a page, or of as many pages of one plane as there are channels."""

    def __init__(self, file: Any, source: Source, channels: int | None) -> None:
        page = file.pages[0]
        if page.photometric.name not in _READ:
            raise UnreadableImage(f"a TIFF with colours as {page.photometric.name}")
        self._file, self._source = file, source
        self._channels = channels if page.samplesperpixel == 1 and (channels or 1) not in (1, 3, 4) else 1  # pages
        self.has_places = self._channels > 1
        self._first, self._frame, self._place = page, 0, 0
        count = page.samplesperpixel if self._channels == 1 else self._channels
        has_alpha = bool(set(map(int, page.extrasamples)) & _ALPHA) and count in (2, 4)
        colours = 3 if page.photometric.name in ("RGB", "YCBCR") else count - has_alpha
        size, is_deep = (page.imagewidth, page.imagelength), page.dtype not in (np.uint8, np.bool_)
        super().__init__(size, count, colours=colours, has_alpha=has_alpha, is_deep=is_deep)
        self.is_associated = has_alpha and _ASSOCIATED in map(int, page.extrasamples)
        self.is_inverted = page.photometric.name == "MINISWHITE"
        self.orientation = _orientation(page)
        self.spare = 0 if channels == count else count - colours - has_alpha
        self.itemsize = page.dtype.itemsize
        self.tagged = nodata_of(page.tags.valueof(NODATA))

    def close(self) -> None:
        self._file.close()

    def places(self) -> np.ndarray:
        """(P, 2) int64 number of each picture, and the directory of its first page; 0 where others lie between them."""
        if self._channels == 1:
            return places(self._source)
        offsets = [offset for offset, _ in directories(self._source)]
        sets = _sets(self._file, len(offsets), self._channels)
        is_in_order = all(pages == list(range(pages[0], pages[0] + len(pages))) for pages in sets)
        return np.array([(number, offsets[pages[0]] * is_in_order) for number, pages in enumerate(sets)], np.int64)

    def seek(self, page: int, place: int = 0) -> None:
        """place: of the picture's first directory; 0: it is looked for."""
        self._frame, self._place = page, place
        first = self._page(self._directories()[0])
        self.size, self.orientation = _size(first), _orientation(first)

    def _directories(self) -> list[int]:
        """The directories of the picture's pages."""
        if self._channels == 1 and not self._frame:
            return [self._first.offset]
        if self._place:
            return [offset for offset, _ in islice(directories(self._source, self._place), self._channels)]
        offsets = [offset for offset, _ in directories(self._source)]
        wanted = (
            _sets(self._file, len(offsets), self._channels)
            if self._channels > 1
            else [[n] for n in range(len(offsets))]
        )
        if self._frame >= len(wanted):
            raise EOFError(f"there is no page {self._frame}")
        return [offsets[number] for number in wanted[self._frame]]

    def _page(self, place: int) -> Any:
        import tifffile

        if place == self._first.offset:
            return self._first
        self._file.filehandle.seek(place)
        return tifffile.TiffPage(self._file, index=0)

    def _read_planes(self) -> np.ndarray:
        pages = [self._page(offset) for offset in self._directories()]
        if len(pages) < self._channels or any(_size(page) != self.size for page in pages):
            raise UnreadableImage("a TIFF whose pages of one picture have several sizes")
        try:
            return np.concatenate([_planes(page) for page in pages])
        except ValueError as error:
            if "imagecodecs" in str(error):
                raise MissingPackage("the compression of this TIFF", "imagecodecs", "tiff") from error
            raise


def _size(page: Any) -> tuple[int, int]:
    return page.imagewidth, page.imagelength


def _orientation(page: Any) -> int:
    return page.keyframe.tags.valueof(ORIENTATION, 1)


def _planes(page: Any) -> np.ndarray:
    """The planes (C, H, W) of a page."""
    if len(page.shape) not in (2, 3):
        raise UnreadableImage(f"a TIFF page of shape {page.shape}")
    if prod(page.chunks) > prod(page.shape) + _ROOM:
        raise UnreadableImage(f"a TIFF with tiles of shape {page.chunks}, larger than the image")
    values = page.asarray()
    if values.ndim == 2:
        return values[None]
    return values if page.axes.startswith("S") else values.transpose(2, 0, 1)


def _sets(file: Any, count: int, channels: int) -> list[list[int]]:
    """The pages of each picture: those that the file's description calls channels, else those that follow each other.

    Raises UnreadableImage if the pages are not a multiple of the channels.
    """
    series = file.series[0]
    lengths = dict(zip(series.axes, series.shape, strict=True))
    first = [length for axis, length in lengths.items() if axis not in "YX"]
    pages = np.arange(count)
    if lengths.get("C") == channels and np.prod(first) == len(pages):
        axes = [axis for axis in series.axes if axis not in "YX"]
        pages = np.moveaxis(pages.reshape(first), axes.index("C"), -1)
    if count % channels:
        raise UnreadableImage(f"{count} pages of one channel, which are not data.channels={channels}")
    return pages.reshape(-1, channels).tolist()
