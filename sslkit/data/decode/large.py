"""Images with more pixels than Pillow opens, for a data set that allows them.

Pillow's own limit is one for the whole process; this one holds for one data set, in whatever process it is read.
"""

import io
import struct
import zlib
from pathlib import Path
from typing import IO

from PIL import Image, ImageFile, UnidentifiedImageError

from sslkit.data.decode.unreadable import TooLarge

Source = str | Path | IO[bytes]  # a file, or its content
_START = 16  # bytes that Pillow's formats look at
_AT_ONCE = 2**20  # bytes of a deflated stream: memory, and few calls
_BESIDE = 2**20  # bytes of what a file holds beside its pixels: colour profiles and previews
PNG_SIGN = b"\x89PNG\r\n\x1a\n"
_TEXTS = (b"tEXt", b"zTXt", b"iTXt", b"iCCP")  # chunks that Pillow unpacks as it opens a PNG, with a limit


def open_below(source: Source, most: int | None) -> Image.Image:
    """Open an image of at most Pillow's limit, 179 million pixels, or with another limit of any size: see `check_size`.

    Raises TooLarge, and what Pillow raises.
    """
    try:
        return _open(source, most)
    except Image.DecompressionBombError as error:
        advice = "data.max_pixels=NUMBER allows more" if most is None else "Pillow reads no more of this format"
        raise TooLarge(
            f"it has more than {2 * Image.MAX_IMAGE_PIXELS:,} pixels, which a small file can have to fill the memory: "
            f"{advice}"
        ) from error


def _open(source: Source, most: int | None) -> Image.Image:
    """Open by Pillow; a PNG without its texts and colour profile, where Pillow refuses them for their size."""
    try:
        image = Image.open(source) if most is None else open_unlimited(source)
    except ValueError:
        content = start_of(source, -1)
        if not content.startswith(PNG_SIGN) or len(plain := _without_texts(content)) == len(content):
            raise
        return _open(io.BytesIO(plain), most)
    if image.format == "TIFF":
        image.filename = ""  # with it Pillow maps the file, and mixes up the rows of what EXIF turns by a quarter
    return image


def _without_texts(content: bytes) -> bytes:
    """A PNG without the chunks that Pillow unpacks whole as it opens it."""
    chunks, start = [PNG_SIGN], len(PNG_SIGN)
    while start < len(content):
        end = start + 12 + int.from_bytes(content[start : start + 4])
        chunks += [] if content[start + 4 : start + 8] in _TEXTS else [content[start:end]]
        start = end
    return b"".join(chunks)


def check_size(size: tuple[int, int], width: int, most: int | None) -> None:
    """Raises TooLarge for an image of more pixels than are allowed. width: bytes of a pixel; 8 count as two pixels."""
    limit = _limit(most)
    pixels = size[0] * size[1] * max(4, width) // 4
    if pixels > limit:
        raise TooLarge(f"it has {pixels:,} pixels, more than {limit:,}: data.max_pixels={pixels} allows it")


def check_inflated(file: IO[bytes], most: int | None) -> None:
    """Raises TooLarge for a deflated stream of more bytes than the pixels that are allowed. Nothing of it is kept."""
    pixels = _limit(most)
    limit, length, inflate, packed = 4 * pixels + _BESIDE, 0, zlib.decompressobj(-zlib.MAX_WBITS), b""
    while not inflate.eof and (packed := inflate.unconsumed_tail or file.read(_AT_ONCE)):
        length += len(inflate.decompress(packed, _AT_ONCE))
        if length > limit:
            raise TooLarge(
                f"it is deflated, and has more than {limit:,} bytes, those of {pixels:,} pixels: "
                "data.max_pixels=NUMBER allows more"
            )


def _limit(most: int | None) -> int:
    return most or 2 * (Image.MAX_IMAGE_PIXELS or 2**62)


def open_unlimited(source: Source) -> Image.Image:
    """`Image.open` without its limit."""
    Image.init()
    start = start_of(source, _START)
    for name in Image.ID:
        factory, accept = Image.OPEN[name]
        if accept is None or accept(start) in (True, 1):
            try:
                return _without_limit(factory(source, None))
            except (SyntaxError, IndexError, TypeError, struct.error):  # of another format
                rewound(source)
    raise UnidentifiedImageError


def _without_limit(image: Image.Image) -> Image.Image:
    """The image, without the limit that Pillow has for compressed TIFFs when it decodes them."""

    def prepare() -> None:
        if image._im is None:
            image.im = Image.core.new(image.mode, image._tile_size)
        ImageFile.ImageFile.load_prepare(image)

    if hasattr(image, "_tile_size"):
        image.load_prepare = prepare
    return image


def release(image: Image.Image, source: Source) -> None:
    """Close the file that Pillow opened, for another reader of the source; one that was given stays open."""
    if isinstance(source, (str, Path)):
        image.close()


def start_of(source: Source, length: int) -> bytes:
    """The first bytes of a file, or of one that is open, which is rewound. length: -1 for all."""
    if isinstance(source, (str, Path)):
        with open(source, "rb") as file:
            return file.read(length)
    start = rewound(source).read(length)
    rewound(source)
    return start


def rewound(source: Source) -> Source:
    """The source, at its start if it is open."""
    if not isinstance(source, (str, Path)):
        source.seek(0)
    return source
