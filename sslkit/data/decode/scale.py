"""The scale of pixels of more than 8 bits: one linear function to 0..255 for a whole data set, in all its splits.

Views are made of bytes, and 256 levels over the values that occur are enough for them. 256 levels over the values that
the type can hold are not: of 12 bits in a file of 16 they leave 16. So the range is that of the data set's values,
decided once for all images. Values outside are clipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, floor
from typing import Any

import numpy as np

from sslkit.data.decode.fill import Ends, Fill, is_filled, replace_missing, spans_of
from sslkit.data.decode.unreadable import UnreadableImage
from sslkit.errors import UserError
from sslkit.terminal import say

Range = tuple[float, float]
AUTO = "auto"
NO_FILL = "fill=none"
LEVELS = 256  # of 8 bits
BYTE = (0.0, 255.0)  # the ends of 8 bits
_LONG = 1e15  # from here on whole numbers are written shorter
# levels in use, of all pixels and of a channel, below which a line says it: a quarter of 8 bits, and a sixteenth
FEW, POOR = 64, 16
# share of the darkest and of the brightest pixels that do not count as used: hot and dead pixels are fewer
_TAIL = 0.001
_ENOUGH = 2**16  # pixels of an image for its quantiles: 65 of them are beyond _TAIL


@dataclass(frozen=True)
class Scale:
    """How stored values become bytes: decided once for a data set, in all its splits.

    range: the values of pixels of more than 8 bits that become 0 and 255; None for 8 bits.
    opacity: whether the plane behind gray or RGB is opacity where a file declares it so; None if none was met.
    fill: of pixels of more than 8 bits the value that stands for none, beside those of tags; "tagged" for these alone,
        "none" for not even these.
    """

    range: Range | None = None
    opacity: bool | None = None
    fill: Fill | None = None

    def or_else(self, other: "Scale") -> "Scale":
        """Each part of this scale that is known, and the other's where it is not."""
        return Scale(
            *(theirs if value is None else value for value, theirs in zip(_parts(self), _parts(other), strict=True))
        )

    def within(self, found: "Scale") -> "Scale":
        """The parts of this scale that images have of which the other was found."""
        return Scale(*(None if has is None else value for value, has in zip(_parts(self), _parts(found), strict=True)))

    def words(self) -> dict[str, str]:
        """Each known part by its name, as a command line writes it."""
        texts = {"range": self.range and written(self.range), "opacity": _word(self.opacity), "fill": _word(self.fill)}
        return {name: f"{name}={word}" for name, word in texts.items() if word is not None}


UNKNOWN = Scale()


def _word(value: bool | Fill | None) -> str | None:
    return None if value is None else number(value) if isinstance(value, float) else str(value).lower()


def _parts(scale: Scale) -> tuple[Any, ...]:
    return scale.range, scale.opacity, scale.fill


def written(scale: Range) -> str:
    """A range as a command line writes it: `[0,4095]`."""
    return "[" + ",".join(map(number, scale)) + "]"


def number(value: float) -> str:
    """A value with at most seven digits, a whole one with all."""
    return str(int(value)) if float(value).is_integer() and abs(value) < _LONG else f"{value:.7g}"


def line_of_unused_range(scale: Range, name: str) -> str:
    """The line on a range that is given for 8 bits."""
    return f"{name}: range={written(scale)} is for images of more than 8 bits, and those found here have 8"


def to_bytes(values: np.ndarray, scale: Range) -> np.ndarray:
    """Finite values of any type, from `scale` to 0..255, rounded and clipped. Bytes and booleans have their own."""
    if values.dtype == np.uint8:
        return values
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype == np.uint16:
        return _table(scale)[values]
    return _scale_to_bytes(values.astype(np.float32 if values.dtype == np.float16 else _wide(values.dtype)), scale)


def is_deep(dtype: np.dtype) -> bool:
    """Return whether pixels of this type need a range."""
    return dtype not in (np.uint8, np.bool_)


def finite(values: np.ndarray) -> np.ndarray:
    """Return the values. Raises UnreadableImage for NaN, infinity, and what is no number."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise UnreadableImage("NaN or infinite pixels")
    if values.dtype.kind not in "buif":
        raise UnreadableImage(f"pixels of type {values.dtype}")
    return values


def guess_range(values: np.ndarray) -> Range:
    """The scale of one image that belongs to no set, or whose set seemed to have only 8 bits, with a warning.

    16 bits for integers, [0, 1] or [0, 255] for floats. Raises UnreadableImage for other values.
    """
    low, high = values.min(), values.max()
    is_float = values.dtype.kind == "f"
    if low < 0 or high > (255 if is_float else 65535):
        allowed = "in [0, 1] or [0, 255]" if is_float else "0 to 65535 (16 bits)"
        kind = "float" if is_float else "integer"
        raise UnreadableImage(f"{kind} pixels from {low:.9g} to {high:.9g}; must be {allowed}, or give range=")
    scale = (0.0, 65535.0) if not is_float else (0.0, 1.0) if high <= 1 else BYTE
    say.warn(
        f"an image of more than 8 bits, where no range= is known: it is read by range={written(scale)}",
        stacklevel=1,
    )
    return scale


def bytes_of(values: np.ndarray, scale: Scale) -> np.ndarray:
    """The pixels of an array: its values by the scale, black where they stand for none."""
    if scale.range is None:
        return to_bytes(values, BYTE)
    return to_bytes(replace_missing(values, spans_of(scale.fill), scale.range[0]), scale.range)


def outside(values: np.ndarray, scale: Scale) -> tuple[int, int]:
    """The number of values (N, ...) outside a range, and of the rows that have some."""
    low, high = scale.range
    clipped = ((values < low) | (values > high)) & ~is_filled(values, spans_of(scale.fill))
    return int(clipped.sum()), int(clipped.reshape(len(values), -1).any(axis=1).sum())


@lru_cache(maxsize=8)
def _table(scale: Range) -> np.ndarray:
    return _scale_to_bytes(np.arange(2**16, dtype=np.float64), scale)


def _scale_to_bytes(values: np.ndarray, scale: Range) -> np.ndarray:
    low, high = scale
    scaled = (values - values.dtype.type(low)) * values.dtype.type((LEVELS - 1) / (high - low))
    return np.rint(scaled.clip(0, LEVELS - 1)).astype(np.uint8)


def _wide(dtype: np.dtype) -> Any:
    """Floats that hold the differences of values of a type."""
    return np.float32 if dtype in (np.float32, np.int8, np.int16) else np.float64


@dataclass
class Values:
    """The values met in some images of more than 8 bits.

    least, most: of all. low, high: of all but a thousandth at either end, in the images where these reach furthest.
    channels: (low, high) of each, where there are several. holes: images in which some pixels have no value.
    """

    kind: str = ""
    images: int = 0
    least: float = np.inf
    most: float = -np.inf
    low: float = np.inf
    high: float = -np.inf
    channels: dict[int, Range] = field(default_factory=dict)
    ends: Ends = field(default_factory=Ends)
    holes: int = 0

    def add(self, planes: Sequence[np.ndarray]) -> None:
        """The values of one image, of each of its planes that has some, or of several images as one plane.

        Raises UserError for integers among floats, which share no scale.
        """
        dtype = planes[0].dtype
        kind = "float" if dtype.kind == "f" else "16-bit" if dtype.itemsize == 2 else "integer"
        if self.kind and (kind == "float") != (self.kind == "float"):
            raise UserError(f"{self.kind} images among {kind} ones, whose values share no scale: give range=")
        self.kind, self.images = self.kind or kind, self.images + 1
        self.least = min(self.least, *(float(values.min()) for values in planes))
        self.most = max(self.most, *(float(values.max()) for values in planes))
        self.low, self.high = _wider((self.low, self.high), *planes)

    def add_image(self, planes: Sequence[np.ndarray], pixels: int) -> None:
        """The values of one image, of those of its pixels that have one in each plane."""
        self.holes += any(values.size < pixels for values in planes)
        if some := [values for values in planes if values.size]:
            self.add(some)
            self.ends.add(some)
            self.add_channels(planes if len(planes) > 1 else ())

    def add_channels(self, planes: Sequence[np.ndarray]) -> None:
        """Those of some images by channel, C of any shape, of which some may be empty."""
        for channel, values in enumerate(planes):
            if not values.size:
                continue
            self.channels[channel] = _wider(self.channels.get(channel, (np.inf, -np.inf)), values)

    def exact(self) -> Range:
        """From the least to the greatest value."""
        return self.least, max(self.most, self.least + 1e-6)

    def usual(self) -> Range:
        """The range that such values have by custom: whole bits, [0, 1] or [0, 255] for floats; else `exact`.

        Whole bits leave room for brighter images than those that were looked at.
        """
        if self.least < 0:
            return self.exact()
        if self.kind == "float":
            return (0.0, 1.0) if self.most <= 1 else (0.0, 255.0) if 128 <= self.most <= 255 else self.exact()
        return 0.0, float(2 ** max(8, int(self.most).bit_length()) - 1)

    def describe(self, scale: Range, fill: Fill | None = None) -> str:
        """The line's part on the values and their scale. fill: what stands for no value."""
        text = f"values {number(self.least)} to {number(self.most)} are scaled to 8 bits by range={written(scale)}"
        return "; ".join(filter(None, (text, self.advice(scale), self._without_value(fill))))

    def _without_value(self, fill: Fill | None) -> str:
        if not self.holes:
            return ""
        which = f"pixels of {_word(fill)}" if isinstance(fill, float) else "pixels that their tags name"
        return f"{which} have no value: they become black and do not count ({NO_FILL} counts them)"

    def advice(self, scale: Range) -> str:
        """The line's part on a better scale; "" where the values use enough of the 256 levels."""
        if self.high > self.low and (levels := _levels((self.low, self.high), scale)) < FEW:
            better = (self.low, self.high) if self.kind == "float" else (floor(self.low), ceil(self.high))
            return (
                f"nearly all pixels lie in {levels} of the 256 levels that the views see: "
                f"range={written(better)} spreads them over all"
            )
        poor = [n + 1 for n, used in self.channels.items() if used[1] > used[0] and _levels(used, scale) < POOR]
        if not poor:
            return ""
        return (
            f"nearly all pixels of channel {', '.join(map(str, poor))} lie in fewer than {POOR} of the 256 levels: all "
            "channels share one range, so write these in another unit"
        )


def _wider(known: Range, *planes: np.ndarray) -> Range:
    """The range known, extended to all of the values but a thousandth at either end."""
    step = max(1, sum(values.size for values in planes) // _ENOUGH)
    some = np.sort(np.concatenate([values.reshape(-1)[::step] for values in planes]))
    tail = int(_TAIL * len(some))
    return min(known[0], float(some[tail])), max(known[1], float(some[-1 - tail]))


def _levels(used: Range, scale: Range) -> int:
    """The number of the 256 levels that a part of the range takes."""
    return 1 + round((LEVELS - 1) * (min(used[1], scale[1]) - max(used[0], scale[0])) / (scale[1] - scale[0]))
