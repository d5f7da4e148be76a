"""Images held in memory as one array."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.data.decode import fill, scale
from sslkit.data.decode.fill import Fill
from sslkit.data.decode.scale import Range, Scale
from sslkit.data.images import Identity, ImageOptions, Images
from sslkit.data.likeness import hash_images
from sslkit.data.pixel_digest import digests_of_arrays, identities
from sslkit.data.resizing import centre, fit_size, middle
from sslkit.errors import UserError
from sslkit.terminal import say

_CONVERTIBLE = (1, 3, 4)  # gray, RGB, RGBA
# images in which channels and what stands for no value are looked for: a round number, read in milliseconds
_SOME = 256
UNMARKED = (
    "{name}: nothing tells whether the last of its 4 channels is opacity: it is a channel like the others, and is read "
    "where 4 are asked for; opacity=true lays the others over white by it"
)


class ArrayImages(Images):
    """pixels: (N, C, H, W) uint8. image_size defaults to the larger side, channels to C.

    Nothing in an array tells opacity: the last of four channels is read as it is, unless `options.opacity` says more.
    Raises UserError when C cannot be converted to the requested channels.
    """

    decodes = False

    def __init__(self, pixels: np.ndarray, identity: Identity, options: ImageOptions) -> None:
        n, channels, height, width = pixels.shape
        if n == 0:
            raise UserError(f"{identity.name} has no images in its split {options.split!r}")
        for labels in (identity.labels, identity.multi_labels, identity.numbers):
            if labels is not None and len(labels) != n:
                raise UserError(f"{identity.name} has {n} images and {len(labels)} labels")
        self.pixels = pixels
        self.name = identity.name
        wanted = options.channels or (3 if channels == 4 and options.opacity else channels)
        self._check_channels(wanted)
        super().__init__(
            identity,
            options,
            channels=wanted,
            image_size=options.image_size or max(height, width),
            native_size=(height, width),
        )

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitems__(self, rows: list[int]) -> dict[str, Any]:
        index = np.asarray(rows, dtype=np.int64)
        pixels = torch.from_numpy(self.pixels[index])
        images = convert_channels(pixels, self.channels, over_white=bool(self.scale.opacity))
        height, width = self.native_size
        aspect = width / height if self.fit == "squash" else 1.0
        options = self.options
        images = fit_square(images, self.image_size, self.fit, options.interpolation, options.resize)
        more = self._identify(index) if self.identifies else {}
        return self.batch(images, index, torch.full((len(index),), aspect), [], **more)

    def read_whole(self, rows: list[int]) -> dict[str, Any]:
        pixels = torch.from_numpy(self.pixels[np.asarray(rows, np.int64)])
        images = convert_channels(pixels, self.channels, over_white=bool(self.scale.opacity))
        return {"images": list(images), "index": torch.tensor(rows), "bad": []}

    def _identify(self, index: np.ndarray) -> dict[str, Tensor]:
        pixels = self.pixels[index]
        if pixels.shape[1] == 4 and self.scale.opacity:  # shown over white, as those of files
            pixels = convert_channels(torch.from_numpy(pixels), 3, over_white=True).numpy()
        return identities(digests_of_arrays(pixels), hash_images(pixels))

    def _check_channels(self, channels: int) -> None:
        have = self.pixels.shape[1]
        if have != channels and not (have in _CONVERTIBLE and channels in _CONVERTIBLE):
            raise UserError(
                f"{self.name} has {have} channels, which cannot become data.channels={channels}: only 1 (gray), 3 "
                "(RGB) and 4 (RGBA) convert into each other"
            )

    def _update_digest(self, digest: Any) -> None:
        digest.update(repr(self.pixels.shape).encode())
        digest.update(np.ascontiguousarray(self.pixels))


def scale_of_array(values: np.ndarray, options: ImageOptions, name: str, first: np.ndarray | None = None) -> Scale:
    """The scale of values (N, C, H, W), with lines that say what was found and not given.

    first: those of the first split, whose scale all splits share; None: the values themselves.
    """
    requested = options.scale
    opacity = None if values.shape[1] != 4 else bool(requested.opacity)
    if opacity is False and requested.opacity is None:
        say.warn(UNMARKED.format(name=name), stacklevel=1)
    if not scale.is_deep(values.dtype):
        if requested.range is not None:
            say.warn(scale.line_of_unused_range(requested.range, name), stacklevel=1)
        return Scale(None, opacity)
    if requested.range is not None or not values.size:
        return Scale(requested.range or scale.BYTE, opacity, fill.TAGGED if requested.fill is None else requested.fill)
    range, none = _measure_range(values if first is None else first, requested.fill, options.range == scale.AUTO, name)
    return Scale(range, opacity, none)


def _measure_range(values: np.ndarray, given: Fill | None, whole: bool, name: str) -> tuple[Range, Fill]:
    """The range of values (N, C, H, W), and what of them stands for none."""
    some = values[:: max(1, len(values) // _SOME)]
    none = _fill_of(some) if given is None else given
    spans = fill.spans_of(none)
    valid, observed = fill.present(values, spans), scale.Values()
    if not valid.size:
        return scale.BYTE, none
    observed.add([valid])
    observed.holes = int(valid.size < values.size)
    observed.add_channels([fill.present(some[:, n], spans) for n in range(some.shape[1])] if some.shape[1] > 1 else ())
    chosen = observed.exact() if whole else observed.usual()
    if chosen != scale.BYTE or observed.advice(chosen) or observed.holes:
        say.warn(f"{name}: {observed.kind} images, whose {observed.describe(chosen, none)}", stacklevel=1)
    return chosen, none


def _fill_of(images: np.ndarray) -> Fill:
    ends = fill.Ends()
    for image in images:
        ends.add(image)
    detected = ends.fill()
    return fill.TAGGED if detected is None else detected


def as_numpy(values: Any) -> np.ndarray:
    """An array or a tensor as an array; numbers that NumPy lacks, as bfloat16, as float32, which holds them all."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        is_known = not values.is_floating_point() or values.dtype in (torch.float16, torch.float32, torch.float64)
        return (values if is_known else values.float()).numpy()
    values = np.asarray(values)
    return values.astype(np.float32) if values.dtype.name == "bfloat16" else values


def convert_channels(images: Tensor, channels: int, *, over_white: bool = False) -> Tensor:
    """(n, C, H, W) uint8 -> (n, channels, H, W): gray is ITU-R 601 luma as in Pillow.

    over_white: a fourth channel is opacity, by which the others are laid over white; False: one that is not read.
    A picture that is transparent everywhere is shown: some programs leave its opacity empty.
    """
    have = images.shape[1]
    if have == channels:
        return images
    if channels == 4:
        opaque = torch.full_like(images[:, :1], 255)
        return torch.cat([convert_channels(images, 3, over_white=over_white), opaque], dim=1)
    if have == 4 and not over_white:
        return convert_channels(images[:, :3], channels)
    if have == 4:
        color, alpha = images[:, :3].int(), images[:, 3:].int()
        hidden = (alpha.amax((1, 2, 3)) == 0) & (color.amax((2, 3)) > color.amin((2, 3))).any(1)
        alpha[hidden] = 255
        laid = (color * alpha + 255 * (255 - alpha) + 127) // 255
        return convert_channels(laid.byte(), channels, over_white=True)
    if have == 1:
        return images.expand(-1, 3, -1, -1).contiguous()
    red, green, blue = images.int().split(1, dim=1)
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).byte()


def fit_square(images: Tensor, size: int, fit: str, interpolation: str, resize: int | None) -> Tensor:
    """(n, C, H, W) uint8 -> (n, C, size, size), antialiased: as files by `pixels.square`, up to two gray levels.

    fit: "squash" resizes the whole image; "crop" resizes the shorter side. resize: to this length, and the square at
    the centre is kept; None: to `size`.
    """
    if fit == "crop" and (box := middle(*images.shape[-2:])):
        left, top, right, bottom = box
        images = images[..., top:bottom, left:right]
    height, width = fit_size(*images.shape[-2:], resize or size, fit)
    if images.shape[-2:] != (height, width):
        # in bytes, which torch rounds after each axis as Pillow does; in floats pixels differ by up to 27 levels
        images = F.interpolate(images, (height, width), mode=interpolation, antialias=True)
    top, left = centre(height, width, size)
    return images[..., top : top + size, left : left + size].contiguous()


def to_nchw(images: np.ndarray, where: str) -> np.ndarray:
    """(N, H, W), (N, H, W, C) or (N, C, H, W) -> (N, C, H, W), contiguous.

    The channel dimension is the one of at most 4, otherwise the one beside two equal sides; if both ends qualify,
    square images win, then (N, H, W, C). Raises UserError when neither does.
    """
    if 0 in images.shape[1:]:
        raise UserError(f"{where} has shape {images.shape}: its images have no pixels")
    if images.ndim == 3:
        return np.ascontiguousarray(images[:, None])
    if images.ndim != 4:
        raise UserError(f"{where} has shape {images.shape}; images are (N, H, W), (N, H, W, C) or (N, C, H, W)")
    _, first, middle, last = images.shape
    small = (last <= 4, first <= 4)
    square = (first == middle, middle == last)
    channels_last, channels_first = small if small[0] != small[1] else square
    if not (channels_last or channels_first or small[0]):
        raise UserError(
            f"{where} has shape {images.shape}: the channels may be first or last; in Python channels_last= says it"
        )

    if channels_first and not channels_last:
        return np.ascontiguousarray(images)
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def check_pixels(images: np.ndarray, where: str) -> np.ndarray:
    """Return the pixels (N, ...). Raises UserError for what is no number, and for NaN and infinity in the first row."""
    if images.dtype.kind not in "buif":
        raise UserError(f"{where} holds {images.dtype}; pixels are integers or floats")
    if images.dtype.kind == "f":
        _refuse_non_finite(images, where)
    return images


def _refuse_non_finite(images: np.ndarray, where: str) -> None:
    broken = ~np.isfinite(images).reshape(len(images), -1).all(axis=1)
    if broken.any():
        raise UserError(
            f"{where} has NaN or infinite pixels in {broken.sum()} of {len(images)} rows, the first is row "
            f"{broken.argmax()}: remove or repair them"
        )
