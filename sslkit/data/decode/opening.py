"""Open one image, in a file or in memory, without decoding it."""

from dataclasses import dataclass
from pathlib import Path
from typing import IO

from PIL import Image, UnidentifiedImageError

from sslkit.data.decode.large import check_size, open_below
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.rare_formats import as_meant, open_rare
from sslkit.data.decode.unreadable import TooLarge, unreadable
from sslkit.files.regular_files import regular

Picture = Image.Image | Planes


@dataclass(frozen=True)
class Opening:
    """How images are opened: as so many channels (None: their own), up to so many pixels (None: Pillow's limit)."""

    channels: int | None = None
    max_pixels: int | None = None


def open_image(source: str | Path | IO[bytes]) -> Image.Image:
    """Open a file, or its content, by Pillow, without decoding. Raises UnreadableImage."""
    try:
        return open_below(regular(source) if isinstance(source, (str, Path)) else source, None)
    except Exception as error:
        raise unreadable(error) from error


def open_picture(source: str | Path | IO[bytes], how: Opening) -> Picture:
    """Open a file, or its content, as it is meant, without decoding: where Pillow cannot, by other packages.

    Raises UnreadableImage, and UserError for a package that is missing.
    """
    try:
        source = regular(source) if isinstance(source, (str, Path)) else source
        return _opened(source, how)
    except Exception as error:
        raise unreadable(error) from error


def _opened(source: str | Path | IO[bytes], how: Opening) -> Picture:
    try:
        found = as_meant(open_below(source, how.max_pixels), source, how.channels)
    except UnidentifiedImageError:
        found = open_rare(source, how.channels)
        if found is None:
            raise
    return checked(found, how.max_pixels)


def checked(found: Picture, most: int | None) -> Picture:
    """The picture, or the page of it that was sought. Raises TooLarge, and closes it, for more pixels than allowed."""
    try:
        check_size(found.size, found.count * found.itemsize if isinstance(found, Planes) else 1, most)
    except TooLarge:
        found.close()
        raise
    return found
