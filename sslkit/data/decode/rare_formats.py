"""Images that Pillow does not open, or not as they are meant: other packages read them where these are installed."""

from pathlib import Path
from typing import IO

from PIL import Image

from sslkit.data.decode import dicom, tiff
from sslkit.data.decode.fits import FitsPlanes
from sslkit.data.decode.halves import halves_of
from sslkit.data.decode.jpeg2000 import deep_jpeg2000
from sslkit.data.decode.large import start_of
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.unreadable import MissingPackage

EXTENSIONS = ("dcm", "dicom", "heic", "heif", "hif")  # beside those of Pillow
_HEIF = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")  # brands
START = dicom.LENGTH  # bytes of a file that tell its format


def is_rare(start: bytes) -> bool:
    """Return whether a file with these first `START` bytes is of a format that Pillow does not know."""
    return dicom.is_dicom(start) or _is_heif(start)


def open_rare(source: str | Path | IO[bytes], channels: int | None) -> Planes | Image.Image | None:
    """Open what Pillow could not; None if it is of no other format. channels: that are wanted.

    Raises MissingPackage, UnreadableImage, and whatever the packages raise.
    """
    start = start_of(source, START)
    if start[:4] in tiff.STARTS:
        return tiff.open_tiff(source, channels)
    if dicom.is_dicom(start):
        return dicom.DicomPlanes(source)
    return _open_heif(source) if _is_heif(start) else None


def as_meant(image: Image.Image, source: str | Path | IO[bytes], channels: int | None) -> Planes | Image.Image:
    """An image that Pillow has opened, or its planes where Pillow would lose some or their bits."""
    if image.format == "TIFF" and (found := tiff.planes_of(image, source, channels)) is not None:
        return found
    if image.format == "FITS" and image.mode != "L":
        image.close()
        return FitsPlanes(source)
    if image.format == "JPEG2000":
        deep = deep_jpeg2000(image, source)
        return image if deep is None else deep
    if image.format not in ("PNG", "TIFF") or (halves := halves_of(image, source)) is None:
        return image
    halves.spare = tiff.spare_of(image)
    return halves


def _is_heif(start: bytes) -> bool:
    return start[4:8] == b"ftyp" and start[8:12] in _HEIF


def _open_heif(source: str | Path | IO[bytes]) -> Image.Image:
    try:
        from pillow_heif import HeifImageFile
    except ImportError as error:
        raise MissingPackage("reading HEIC", "pillow-heif", "heif") from error
    return HeifImageFile(source)
