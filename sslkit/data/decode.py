"""Decode one image file to one square of uint8 pixels (Pillow)."""

import errno
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

EXTENSIONS = ("png", "jpg", "jpeg", "bmp", "gif", "webp", "tif", "tiff", "ppm", "pgm")

_ORIENTATION = 0x0112  # EXIF tag
_STARVED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class UnreadableImage(Exception):
    """The file is not an image, is damaged, or has pixels of unknown scale."""


def open_image(path: str | Path) -> Image.Image:
    """Open without decoding. Raises UnreadableImage."""
    try:
        return Image.open(path)
    except Exception as error:
        raise unreadable(error) from error


def unreadable(error: Exception) -> Exception:
    """UnreadableImage with the reason in one line, for any Pillow error; lack of memory or file handles is kept."""
    if isinstance(error, (UnreadableImage, MemoryError)) or getattr(error, "errno", None) in _STARVED:
        return error
    return UnreadableImage(f"{type(error).__name__}: {error}".splitlines()[0])


def channels_of(image: Image.Image) -> int:
    """1 for gray images (1, 8, 16 or 32 bits, with or without alpha), else 3. Decodes it. Raises UnreadableImage."""
    try:
        return 1 if _eight_bits(image).mode in ("L", "LA") else 3
    except Exception as error:
        raise unreadable(error) from error


def square(
    image: Image.Image, size: int, channels: int, fit: str, interpolation: str = "bilinear"
) -> tuple[np.ndarray, float]:
    """Decode to pixels (channels, size, size) uint8, and width / height of the shown content.

    Rotated upright by its EXIF orientation. 16-bit gray is divided by 257; floats lie in [0, 1] or [0, 255].
    channels: 1 gray, 3 RGB (transparency over white in both), 4 RGBA.
    fit: "squash" the whole image to the square; "crop" keeps the square at its centre, ratio 1.
    interpolation: "bilinear" or "bicubic", antialiased.
    Raises UnreadableImage.
    """
    try:
        return _square(image, size, channels, fit, Image.Resampling[interpolation.upper()])
    except Exception as error:
        raise unreadable(error) from error


def rgb(image: Image.Image) -> np.ndarray:
    """Decode to (3, H, W) uint8 at the image's own size, not rotated. Modes as in `square`. Raises UnreadableImage."""
    try:
        return np.ascontiguousarray(np.asarray(_with_channels(_eight_bits(image), 3)).transpose(2, 0, 1))
    except Exception as error:
        raise unreadable(error) from error


def _square(
    image: Image.Image, size: int, channels: int, fit: str, resampling: Image.Resampling
) -> tuple[np.ndarray, float]:
    orientation, original = _orientation(image), image.size
    image.draft(None, (2 * size, 2 * size))  # a large JPEG is decoded at 1/2, 1/4 or 1/8, at least this size
    if orientation != 1:
        image = ImageOps.exif_transpose(image)
    if orientation >= 5:  # those with a quarter turn
        original = original[::-1]
    image = _with_channels(_eight_bits(image), channels)
    aspect = original[0] / original[1] if fit == "squash" else 1.0
    if image.size != (size, size):
        box = None if fit == "squash" else _centre(image.size)
        image = image.resize((size, size), resampling, box=box, reducing_gap=2.0)
    pixels = np.asarray(image)
    return (pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)), aspect


def _orientation(image: Image.Image) -> int:
    try:
        return image.getexif().get(_ORIENTATION, 1)
    except Exception:  # a damaged EXIF block; the pixels may be fine
        return 1


def _centre(size: tuple[int, int]) -> tuple[float, float, float, float]:
    side = min(size)
    left, top = (size[0] - side) / 2, (size[1] - side) / 2
    return left, top, left + side, top + side


def _eight_bits(image: Image.Image) -> Image.Image:
    """Convert any mode to L, LA, RGB or RGBA."""
    if image.mode.startswith(("I", "F")):
        return _narrowed(image)
    if image.mode == "1":
        return image.convert("L")
    see_through = image.has_transparency_data
    if image.mode in ("L", "LA", "La"):
        return image.convert("RGBA").convert("LA") if see_through and image.mode != "LA" else image
    return image.convert("RGBA" if see_through else "RGB")


def _narrowed(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    if values.dtype.kind == "f":
        return Image.fromarray(_narrowed_floats(values))
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise UnreadableImage(f"integer pixels from {low} to {high}; must be 0 to 65535 (16 bits)")
    return Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))


def _narrowed_floats(values: np.ndarray) -> np.ndarray:
    if not np.isfinite(values).all():
        raise UnreadableImage("NaN or infinite pixels")
    if values.min() < 0 or values.max() > 255:
        raise UnreadableImage(f"float pixels from {values.min():g} to {values.max():g}; must be in [0, 1] or [0, 255]")
    return np.rint(values * (255 if values.max() <= 1 else 1)).astype(np.uint8)


def _with_channels(image: Image.Image, channels: int) -> Image.Image:
    if channels == 4:
        return image.convert("RGBA")
    if image.mode in ("LA", "RGBA"):
        color = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), color)
    return image.convert("L" if channels == 1 else "RGB")
