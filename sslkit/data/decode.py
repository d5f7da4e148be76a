"""Decode one image file to squares of uint8 pixels (Pillow): the whole picture, or crops of it."""

import errno
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from sslkit.regular_files import regular

EXTENSIONS = ("png", "jpg", "jpeg", "bmp", "gif", "webp", "tif", "tiff", "ppm", "pgm")

_ORIENTATION = 0x0112  # EXIF tag
SPARE = 2  # with 1, resizing from a smaller JPEG loses up to half of the energy above half of Nyquist's frequency
_QUARTER_TURN = 5  # the first of the orientations that swap height and width
_STARVED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass(frozen=True)
class Region:
    """A rectangle of an upright image, in whole pixels, and the side of the square that is made of it."""

    top: int
    left: int
    height: int
    width: int
    side: int


class UnreadableImage(Exception):
    """The file is not an image, is damaged, or has pixels of unknown scale."""


def open_image(source: str | Path | IO[bytes]) -> Image.Image:
    """Open a file, or its content, without decoding. Raises UnreadableImage."""
    try:
        return Image.open(regular(source) if isinstance(source, (str, Path)) else source)
    except Exception as error:
        raise unreadable(error) from error


def unreadable(error: Exception) -> Exception:
    """UnreadableImage with the reason in one line, for any Pillow error; lack of memory or file handles is kept."""
    if isinstance(error, (UnreadableImage, MemoryError)) or getattr(error, "errno", None) in _STARVED:
        return error
    if isinstance(error, UnidentifiedImageError):  # its message shows the object in memory, or the path once more
        return UnreadableImage("it is no image of a known format")
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


def regions(
    image: Image.Image, wanted: Sequence[Region], channels: int, interpolation: str = "bilinear"
) -> list[np.ndarray]:
    """Decode once, to pixels (channels, side, side) uint8 of each region.

    A JPEG is decoded at the smallest of its scales (1, 1/2, 1/4, 1/8) at which every region keeps `SPARE` pixels for
    each of its square's, on each axis. Modes, rotation, channels and interpolation as in `square`.
    Raises UnreadableImage.
    """
    try:
        return _regions(image, wanted, channels, Image.Resampling[interpolation.upper()])
    except Exception as error:
        raise unreadable(error) from error


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Height and width of the image as `regions` and `square` rotate it; does not decode."""
    width, height = image.size
    return (width, height) if _orientation(image) >= _QUARTER_TURN else (height, width)


def rgb(image: Image.Image) -> np.ndarray:
    """Decode to (3, H, W) uint8 at the image's own size, not rotated. Modes as in `square`. Raises UnreadableImage."""
    try:
        return np.ascontiguousarray(np.asarray(_with_channels(_eight_bits(image), 3)).transpose(2, 0, 1))
    except Exception as error:
        raise unreadable(error) from error


def _square(
    image: Image.Image, size: int, channels: int, fit: str, resampling: Image.Resampling
) -> tuple[np.ndarray, float]:
    height, width = upright_size(image)
    image.draft(None, (2 * size, 2 * size))  # a large JPEG is decoded at 1/2, 1/4 or 1/8, at least this size
    image = _upright(image, channels)
    aspect = width / height if fit == "squash" else 1.0
    if image.size != (size, size):
        box = None if fit == "squash" else _centre(image.size)
        image = image.resize((size, size), resampling, box=box, reducing_gap=2.0)
    return _planes(image), aspect


def _regions(
    image: Image.Image, wanted: Sequence[Region], channels: int, resampling: Image.Resampling
) -> list[np.ndarray]:
    room = min(min(region.height, region.width) // (SPARE * region.side) for region in wanted)
    scale = next(scale for scale in (8, 4, 2, 1) if room >= scale or scale == 1)
    width, height = image.size
    if scale > 1 and image.draft(None, (width // scale, height // scale)) is None:
        scale = 1  # not a JPEG
    image = _upright(image, channels)
    if scale > 1 or channels != 3:
        return [_planes(_crop(image, region, scale, resampling)) for region in wanted]
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
    return [_cut(pixels, region, resampling.name.lower()) for region in wanted]


def _cut(pixels: Tensor, region: Region, interpolation: str) -> np.ndarray:
    """The pixels of `_crop` at scale 1, up to two gray levels, in a third of its time. pixels: (1, 3, H, W) uint8."""
    rows, columns = slice(region.top, region.top + region.height), slice(region.left, region.left + region.width)
    size = (region.side, region.side)
    return F.interpolate(pixels[:, :, rows, columns], size, mode=interpolation, antialias=True)[0].numpy()


def _crop(image: Image.Image, region: Region, scale: int, resampling: Image.Resampling) -> Image.Image:
    """The square of a region. scale: of the region's pixels to those of the image, which was decoded smaller.

    Cut out first, so that no pixel outside the region is mixed into its border, as in torchvision's resized_crop.
    """
    top, left = region.top / scale, region.left / scale
    bottom, right = top + region.height / scale, left + region.width / scale
    outer = (int(left), int(top), min(math.ceil(right), image.width), min(math.ceil(bottom), image.height))
    cut = image.crop(outer)
    box = (left - outer[0], top - outer[1], min(right - outer[0], cut.width), min(bottom - outer[1], cut.height))
    return cut.resize((region.side, region.side), resampling, box=box, reducing_gap=2.0)


def _upright(image: Image.Image, channels: int) -> Image.Image:
    """Decode, rotate by the EXIF orientation, and convert to this number of channels."""
    if _orientation(image) != 1:
        image = ImageOps.exif_transpose(image)
    return _with_channels(_eight_bits(image), channels)


def _planes(image: Image.Image) -> np.ndarray:
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


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
    wanted = "L" if channels == 1 else "RGB"
    return image if image.mode == wanted else image.convert(wanted)
