"""TIFF files: which of them Pillow reads as they are meant, and the planes of the others."""

from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np
from PIL import Image

from sslkit.data.decode.fill import Spans
from sslkit.data.decode.large import Source, release, rewound
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.unreadable import MissingPackage, UnreadableImage

STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # the last two: BigTIFF
_KIND, _BITS, _PHOTOMETRIC, _SAMPLES, _PLANAR, _EXTRA, _FORMAT = 254, 258, 262, 277, 284, 338, 339
ORIENTATION, QUARTER_TURN = 274, 5  # of EXIF, too; the first of the orientations that swap height and width
NODATA = 42113
_COMPRESSION, _NEW = 259, (34925, 50000, 50001)  # LZMA, ZSTD, WebP: not in every Pillow
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB = 0, 1, 2
_NO_PICTURES = 1 | 4  # of _KIND: smaller copies and masks of other pages
_ALPHA, _ASSOCIATED = {1, 2}, 1  # of _EXTRA
_SIGNED, _APART = 2, 2  # of _FORMAT and _PLANAR
_ROOM = 2**24  # values of a tile beyond the image
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


def pages_of(image: Image.Image) -> list[int]:
    """The pages of an opened TIFF that are pictures of their own; it is left at one of them."""
    pictures = []
    for page in range(image.n_frames):
        image.seek(page)
        if not image.tag_v2.get(_KIND, 0) & _NO_PICTURES:
            pictures.append(page)
    return pictures or [0]


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
    file = tifffile.TiffFile(rewound(source))
    try:
        return TiffPlanes(file, channels)
    except BaseException:
        file.close()
        raise


class TiffPlanes(Planes):
    """The planes of a page, or of as many pages of one plane as there are channels."""

    def __init__(self, file: Any, channels: int | None) -> None:
        page = file.pages[0]
        if page.photometric.name not in _READ:
            raise UnreadableImage(f"a TIFF with colours as {page.photometric.name}")
        self._file = file
        self._sets = _sets(file, channels) if page.samplesperpixel == 1 and (channels or 1) not in (1, 3, 4) else None
        count = page.samplesperpixel if self._sets is None else channels
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
        self._places = self._sets if self._sets is not None else [[place] for place in _pictures(file)]
        self.n_frames, self._frame = len(self._places), 0

    def close(self) -> None:
        self._file.close()

    def seek(self, page: int) -> None:
        if page >= self.n_frames:
            raise EOFError(f"there is no page {page}")
        self._frame = page
        first = self._file.pages[self._places[page][0]]
        self.size, self.orientation = _size(first), _orientation(first)

    def _read(self) -> np.ndarray:
        pages = [self._file.pages[place] for place in self._places[self._frame]]
        if any(_size(page) != self.size for page in pages):
            raise UnreadableImage("a TIFF whose pages of one picture have several sizes")
        try:
            return np.concatenate([_planes(page) for page in pages])
        except ValueError as error:
            if "imagecodecs" in str(error):
                raise MissingPackage("the compression of this TIFF", "imagecodecs", "tiff") from error
            raise


def _size(page: Any) -> tuple[int, int]:
    """Width and height of a page; `keyframe` is the page itself, or one that it is decoded like."""
    return page.keyframe.imagewidth, page.keyframe.imagelength


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


def _pictures(file: Any) -> list[int]:
    return [place for place, page in enumerate(file.pages) if not int(page.subfiletype) & _NO_PICTURES] or [0]


def _sets(file: Any, channels: int) -> list[list[int]]:
    """The pages of each picture: those that the file's description calls channels, else those that follow each other.

    Raises UnreadableImage if the pages are not a multiple of the channels.
    """
    series = file.series[0]
    lengths = dict(zip(series.axes, series.shape, strict=True))
    first = [length for axis, length in lengths.items() if axis not in "YX"]
    pages = np.arange(len(file.pages))
    if lengths.get("C") == channels and np.prod(first) == len(pages):
        axes = [axis for axis in series.axes if axis not in "YX"]
        pages = np.moveaxis(pages.reshape(first), axes.index("C"), -1)
    if len(file.pages) % channels:
        raise UnreadableImage(f"{len(file.pages)} pages of one channel, which are not data.channels={channels}")
    return pages.reshape(-1, channels).tolist()
