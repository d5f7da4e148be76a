"""Pictures embedded in the page as data addresses, small enough for a page of many."""

import base64
import io
from dataclasses import dataclass
from pathlib import Path

from sslkit.files.regular_files import regular

WIDEST = 720  # pixels
COLOURS = 128


@dataclass(frozen=True)
class Picture:
    """source: a data address. alt: description in words. width, height: pixels."""

    source: str
    alt: str
    width: int
    height: int


def picture(path: Path, alt: str) -> Picture | None:
    """Read a picture as PNG of at most 720 pixels width and 128 colours; None if it is missing or unreadable."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(regular(path)) as image:
            image = image.convert("RGB")
    except (OSError, UnidentifiedImageError):
        return None
    if image.width > WIDEST:
        image = image.resize((WIDEST, round(image.height * WIDEST / image.width)), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    few = image.quantize(COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(buffer, format="png", compress_level=6)  # a zoo of forty has eighty pictures
    source = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    return Picture(source, alt, image.width, image.height)
