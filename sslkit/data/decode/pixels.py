"""Decode one image file to squares of uint8 pixels (Pillow): the whole picture, or crops of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor

from sslkit.data.arrays import fit_square
from sslkit.data.decode.fill import Spans, present, replace_missing
from sslkit.data.decode.opening import Picture
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.scale import Range, finite, guess_range, to_bytes
from sslkit.data.decode.tiff import NODATA, ORIENTATION, QUARTER_TURN, is_unsigned, nodata_of, orientation_of
from sslkit.data.decode.unreadable import as_unreadable
from sslkit.data.likeness import hash_picture, hash_pixels
from sslkit.data.pixel_digest import digest_of_pixels
from sslkit.data.resizing import centre, fit_size, middle

SPARE = 2  # with 1, resizing from a smaller JPEG loses up to half of the energy above half of Nyquist's frequency
_DEEP = ("I", "F")  # the beginnings of Pillow's modes of more than 8 bits
_SMALLER = ("JPEG", "MPO")  # formats that are decoded at 1/2, 1/4 or 1/8; others have other pictures of smaller sizes


@dataclass(frozen=True)
class Region:
    """A rectangle of an upright image, in whole pixels, and the side of the square that is made of it."""

    top: int
    left: int
    height: int
    width: int
    side: int


def channels_of(image: Picture) -> int:
    """1 for gray images (of any depth, with or without alpha), 3 for colours, else the number of planes.

    Raises UnreadableImage.
    """
    with as_unreadable(image.size):
        if isinstance(image, Planes):
            return image.colours
        return 1 if is_deep(image) or _eight_bits(image, None).mode in ("L", "LA") else 3


def is_deep(image: Picture) -> bool:
    """Return whether the pixels have more than 8 bits; does not decode."""
    return image.is_deep if isinstance(image, Planes) else image.mode.startswith(_DEEP)


def values_of(image: Picture, channels: int | None) -> list[np.ndarray]:
    """Decode an image of more than 8 bits: the values of each plane, of those pixels that have one.

    Raises UnreadableImage.
    """
    with as_unreadable(image.size):
        return image.values(channels) if isinstance(image, Planes) else [finite(present(_values(image), _spans(image)))]


def square(
    image: Picture,
    size: int,
    channels: int,
    fit: str,
    interpolation: str,
    scale: Range | None = None,
    *,
    resize: int | None,
) -> tuple[np.ndarray, float]:
    """Decode to pixels (channels, size, size) uint8, and width / height of the shown content.

    Rotated upright by its EXIF orientation.
    channels: 1 gray, 3 RGB (transparency over white in both, but for a picture that is transparent everywhere), 4 RGBA,
        or the number of planes of the image.
    fit: "squash" the whole image to the square; "crop" keeps the square at its centre, ratio 1.
    resize: length of both sides ("squash") or the shorter one ("crop") before whole pixels are cut out at the centre;
        None: size. With it, and with "crop", the pixels are those of timm's transform for evaluation. A "squash"
        without it is a copy for views and thumbnails: a large JPEG is decoded at 1/2, 1/4 or 1/8, at twice the size.
    interpolation: "bilinear" or "bicubic", antialiased.
    scale: the values of more than 8 bits that become 0 and 255; None as of `scale.guess_range`.
    Raises UnreadableImage.
    """
    with as_unreadable(image.size):
        if isinstance(image, Planes):
            pixels = image.pixels(channels, scale)[None]
            aspect = pixels.shape[3] / pixels.shape[2] if fit == "squash" else 1.0
            return fit_square(pixels, size, fit, interpolation, resize)[0].numpy(), aspect
        height, width = upright_size(image)
        aspect = width / height if fit == "squash" else 1.0
        resampling = Image.Resampling[interpolation.upper()]
        if fit == "squash" and resize is None:
            # Not for evaluation: even at 8 times the size the cosine of features can be 0.9990 (efficientnet_lite0).
            image.draft(None, (SPARE * size, SPARE * size))
            image = _upright(image, channels, scale)
            return _planes(image.resize((size, size), resampling, reducing_gap=2.0)), aspect
        return _planes(_fit_square(_upright(image, channels, scale), size, fit, resampling, resize or size)), aspect


def regions(
    image: Picture,
    wanted: Sequence[Region],
    channels: int,
    interpolation: str,
    scale: Range | None = None,
) -> list[np.ndarray]:
    """Decode once, to pixels (channels, side, side) uint8 of each region.

    A JPEG is decoded at the smallest of its scales (1, 1/2, 1/4, 1/8) at which every region keeps `SPARE` pixels for
    each of its square's, on each axis. Modes, rotation, channels, interpolation and scale as in `square`.
    Raises UnreadableImage.
    """
    with as_unreadable(image.size):
        if isinstance(image, Planes):
            pixels = image.pixels(channels, scale)[None]
            return [_cut(pixels, region, interpolation) for region in wanted]
        room = min(min(region.height, region.width) // (SPARE * region.side) for region in wanted)
        shrunk = next(factor for factor in (8, 4, 2, 1) if room >= factor or factor == 1)
        width, height = image.size
        if image.format not in _SMALLER or image.draft(None, (width // shrunk, height // shrunk)) is None:
            shrunk = 1
        image = _upright(image, channels, scale)
        if shrunk > 1 or channels != 3:
            resampling = Image.Resampling[interpolation.upper()]
            return [_planes(_crop(image, region, shrunk, resampling)) for region in wanted]
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
        return [_cut(pixels, region, interpolation) for region in wanted]


def whole(image: Picture, channels: int, scale: Range | None) -> np.ndarray:
    """Decode to (channels, H, W) uint8 at the image's own size, rotated upright. Channels, scale as in `square`.

    Raises UnreadableImage.
    """
    with as_unreadable(image.size):
        if isinstance(image, Planes):
            return image.pixels(channels, scale).numpy()
        return np.ascontiguousarray(_planes(_upright(image, channels, scale)))


def upright_size(image: Picture) -> tuple[int, int]:
    """Height and width of the image as `regions` and `square` rotate it; does not decode."""
    width, height = image.size
    return (width, height) if _orientation(image) >= QUARTER_TURN else (height, width)


def identify(image: Picture) -> tuple[int, np.ndarray]:
    """Decode at full size and return digest and hash (4,) int64 of the upright pixels, as `Images.identifies` says.

    Of at most 8 bits: of the RGB values as shown, over white. Of more: of the values as stored, by no range.
    Raises UnreadableImage.
    """
    with as_unreadable(image.size):
        if isinstance(image, Planes):
            image.hold()
            shown = not image.is_deep and image.becomes(3)
            pixels = (image.pixels(3, None).numpy() if shown else image.upright_planes()).transpose(1, 2, 0)
            return digest_of_pixels(pixels), hash_pixels(pixels)
        if is_deep(image):
            pixels = _values(ImageOps.exif_transpose(image) if _orientation(image) != 1 else image)[..., None]
            return digest_of_pixels(pixels), hash_pixels(pixels)
        image = _upright(image, 3, None)
        return digest_of_pixels(np.asarray(image)), hash_picture(image)


def rgb(image: Picture, scale: Range | None = None) -> np.ndarray:
    """Decode to (3, H, W) uint8 at the image's own size, not rotated. Modes, scale as in `square`.

    Raises UnreadableImage.
    """
    with as_unreadable(image.size):
        if isinstance(image, Planes):
            image.orientation = 1
            return image.pixels(3, scale).numpy()
        return np.ascontiguousarray(np.asarray(_with_channels(_eight_bits(image, scale), 3)).transpose(2, 0, 1))


def _cut(pixels: Tensor, region: Region, interpolation: str) -> np.ndarray:
    """The pixels of `_crop` at scale 1, up to two gray levels, in a third of its time. pixels: (1, C, H, W) uint8."""
    rows, columns = slice(region.top, region.top + region.height), slice(region.left, region.left + region.width)
    size = (region.side, region.side)
    return F.interpolate(pixels[:, :, rows, columns], size, mode=interpolation, antialias=True)[0].numpy()


def _crop(image: Image.Image, region: Region, shrunk: int, resampling: Image.Resampling) -> Image.Image:
    """The square of a region. shrunk: how much smaller than the region's the image was decoded.

    Cut out first, so that no pixel outside the region is mixed into its border, as in torchvision's resized_crop.
    """
    top, left = region.top / shrunk, region.left / shrunk
    bottom, right = top + region.height / shrunk, left + region.width / shrunk
    outer = (int(left), int(top), min(math.ceil(right), image.width), min(math.ceil(bottom), image.height))
    cut = _cut_out(image, outer)
    box = (left - outer[0], top - outer[1], min(right - outer[0], cut.width), min(bottom - outer[1], cut.height))
    return cut.resize((region.side, region.side), resampling, box=box, reducing_gap=2.0)


def _cut_out(image: Image.Image, box: tuple[int, int, int, int]) -> Image.Image:
    width, height = box[2] - box[0], box[3] - box[1]
    if Image.MAX_IMAGE_PIXELS and width * height > Image.MAX_IMAGE_PIXELS:  # `crop` refuses what may be allowed here
        return image.transform((width, height), Image.Transform.EXTENT, box)
    return image.crop(box)


def _upright(image: Image.Image, channels: int, scale: Range | None) -> Image.Image:
    """Decode, rotate by the EXIF orientation, and convert to this number of channels."""
    if _orientation(image) != 1:
        image = ImageOps.exif_transpose(image)
    return _with_channels(_eight_bits(image, scale), channels)


def _planes(image: Image.Image) -> np.ndarray:
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _orientation(image: Picture) -> int:
    if isinstance(image, Planes):
        return image.orientation
    try:
        return orientation_of(image) if image.format == "TIFF" else image.getexif().get(ORIENTATION, 1)
    except Exception:  # a damaged EXIF block; the pixels may be fine
        return 1


def _fit_square(image: Image.Image, size: int, fit: str, resampling: Image.Resampling, side: int) -> Image.Image:
    """Resize the picture to this side, and cut out the square at its centre."""
    if fit == "crop" and (box := middle(image.height, image.width)):
        image = _cut_out(image, box)
    height, width = fit_size(image.height, image.width, side, fit)
    image = image.resize((width, height), resampling)
    top, left = centre(height, width, size)
    return image.crop((left, top, left + size, top + size))


def _eight_bits(image: Image.Image, scale: Range | None) -> Image.Image:
    """Convert any mode to L, LA, RGB or RGBA."""
    if image.mode.startswith(_DEEP):
        values, spans = _values(image), _spans(image)
        scale = scale or guess_range(finite(present(values, spans)))
        return Image.fromarray(to_bytes(finite(replace_missing(values, spans, scale[0])), scale))
    if image.mode == "1":
        return image.convert("L")
    if image.mode == "La":  # multiplied by its opacity; Pillow converts it to nothing else
        return image.convert("LA")
    see_through = image.has_transparency_data
    if image.mode in ("L", "LA"):
        return image.convert("RGBA").convert("LA") if see_through and image.mode != "LA" else image
    return image.convert("RGBA" if see_through else "RGB")


def _values(image: Image.Image) -> np.ndarray:
    values = np.asarray(image)
    return values.view(np.uint32) if is_unsigned(image) else values


def _spans(image: Image.Image) -> Spans:
    return nodata_of(image.tag_v2.get(NODATA)) if image.format == "TIFF" else ()


def _is_unused(image: Image.Image) -> bool:
    """Return whether an opacity of 0 everywhere hides a picture: some programs leave the channel empty."""
    if image.getchannel("A").getextrema() != (0, 0):
        return False
    return any(low < high for low, high in image.getextrema()[:-1])


def _with_channels(image: Image.Image, channels: int) -> Image.Image:
    if channels == 4:
        return image.convert("RGBA")
    if image.mode in ("LA", "RGBA") and not _is_unused(image):
        color = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), color)
    wanted = "L" if channels == 1 else "RGB"
    return image if image.mode == wanted else image.convert(wanted)
