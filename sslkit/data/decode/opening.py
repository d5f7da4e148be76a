"""Open one image, in a file or in memory, without decoding it.

Other packages, where they are installed, read what Pillow does not open, or not as it is meant.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from sslkit.data.decode import dicom, fits, tiff
from sslkit.data.decode.deep import PlainPlanes, deep_jpeg2000, halves_of, tells_opacity
from sslkit.data.decode.formats import is_heif
from sslkit.data.decode.large import PNG_SIGN, Source, check_size, open_below, release, start_of
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.sandbox.proxies import open_in_sandbox
from sslkit.data.decode.unreadable import MissingPackage, TooLarge, UnreadableImage, as_unreadable
from sslkit.files.reading import STAND_IN, regular, stand_in

Picture = Image.Image | Planes

_PLAIN_START = 2**12  # bytes of a file that tell whether it is plain, of PNG mostly
_ANIMATED = 2  # of the flags of a WebP


@dataclass(frozen=True)
class Opening:
    """How images are opened: as so many channels (None: their own), up to so many pixels (None: Pillow's limit)."""

    channels: int | None = None
    max_pixels: int | None = None


@as_unreadable()
def open_image(source: Source) -> Image.Image:
    """Open a file, or its content, by Pillow, without decoding. Raises UnreadableImage."""
    return _open_safely(source, Opening(), by_pillow=True)


@as_unreadable()
def open_picture(source: Source, how: Opening) -> Picture:
    """Open a file, or its content, as it is meant, without decoding: where Pillow cannot, by other packages.

    Raises UnreadableImage, and UserError for a package that is missing.
    """
    return _open_safely(source, how, by_pillow=False)


def _open_safely(source: Source, how: Opening, *, by_pillow: bool) -> Picture:
    """A plain image is opened here, any other by a process with limits, see `sandbox`."""
    source = regular(source) if isinstance(source, (str, Path)) else source
    kind = kind_of(source, how.channels)
    if kind is None:
        return open_by_pillow(source) if by_pillow else open_as_meant(source, how)
    return open_in_sandbox(source, kind, {"by_pillow": by_pillow, **asdict(how)})


def open_by_pillow(source: Source) -> Image.Image:
    """`open_image` in this process."""
    return open_below(source, None)


def open_as_meant(source: Source, how: Opening) -> Picture:
    """`open_picture` in this process."""
    try:
        picture = _as_meant(open_below(source, how.max_pixels), source, how.channels)
    except UnidentifiedImageError:
        picture = _open_rare(source, how)
        if picture is None and (message := stand_in(start_of(source, STAND_IN))):
            raise UnreadableImage(message) from None
        if picture is None:
            raise
    return check_picture(picture, how.max_pixels)


def kind_of(source: Source, channels: int | None) -> str | None:
    """None for a plain image; else the packages that a file with this content may need, see `sandbox.server`.

    channels: that are wanted.
    """
    start = start_of(source, _PLAIN_START)
    if start[:8] == PNG_SIGN and b"IDAT" not in start:
        start = start_of(source, -1)  # long texts before the pixels
    if is_plain(start):
        return None
    if start[:4] in tiff.STARTS:
        return None if tiff.is_plain(source, channels) else "tiff"
    return "dicom" if dicom.is_dicom(start) else "heif" if is_heif(start) else "pillow"


def is_plain(start: bytes) -> bool:
    """Return whether a file with these first `_PLAIN_START` bytes is one picture of a kind that asks for nothing else.

    JPEG, BMP, and PNG and WebP without animation: libraries that every browser feeds with what strangers wrote. TIFF
    has a rule of its own, `tiff.is_plain`.
    """
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return not (start[12:16] == b"VP8X" and start[20:21] and start[20] & _ANIMATED)
    if start[:8] == PNG_SIGN:
        return b"acTL" not in start[: start.find(b"IDAT")]
    return start[:3] == b"\xff\xd8\xff" or start[:2] == b"BM"


def check_picture(picture: Picture, most: int | None) -> Picture:
    """The picture, or the page of it that was sought. Raises TooLarge, and closes it, for more pixels than allowed."""
    try:
        check_size(picture.size, picture.count * picture.itemsize if isinstance(picture, Planes) else 1, most)
    except TooLarge:
        picture.close()
        raise
    return picture


def _open_rare(source: Source, how: Opening) -> Picture | None:
    """Open what Pillow could not; None if it is of no other format.

    Raises MissingPackage, TooLarge, UnreadableImage, and whatever the packages raise.
    """
    start = start_of(source, dicom.LENGTH)
    if start[:4] in tiff.STARTS:
        return tiff.open_tiff(source, how.channels)
    if dicom.is_dicom(start):
        return dicom.DicomPlanes(source, how.max_pixels)
    return _open_heif(source) if is_heif(start) else None


def _as_meant(image: Image.Image, source: Source, channels: int | None) -> Picture:
    """An image that Pillow has opened, or its planes where Pillow would lose some or their bits."""
    if image.format == "TIFF" and (planes := tiff.planes_of(image, source, channels)) is not None:
        return planes
    if image.format == "FITS" and (image.mode != "L" or fits.is_misread(source)):
        release(image, source)
        return fits.FitsPlanes(source)
    if image.format == "JPEG2000":
        deep = deep_jpeg2000(image, source)
        if deep is None and image.mode in ("LA", "RGBA") and not tells_opacity(source):
            return PlainPlanes(image)
        return image if deep is None else deep
    if image.format not in ("PNG", "TIFF") or (halves := halves_of(image, source)) is None:
        return image
    halves.spare = tiff.spare_of(image)
    return halves


def _open_heif(source: Source) -> Image.Image:
    try:
        from pillow_heif import HeifImageFile
    except ImportError as error:
        raise MissingPackage("reading HEIC", "pillow-heif", "heif") from error
    return HeifImageFile(source)
