"""The values that occur in images of more than 8 bits, and the range that they are read by."""

from dataclasses import dataclass, field
from math import ceil, floor

import numpy as np

from sslkit.data.decode.scale import LEVELS, Range, number, written
from sslkit.errors import UserError

FEW, POOR = 64, 16  # levels in use, of all pixels and of a channel, below which a line says it
_TAIL = 0.001  # share of the darkest and of the brightest pixels that do not count as used
_ENOUGH = 2**16  # pixels of an image for its quantiles


@dataclass
class Values:
    """The values met in some images of more than 8 bits.

    least, most: of all. low, high: of all but a thousandth at either end, in the images where these reach furthest.
    channels: (low, high) of each, where there are several.
    """

    kind: str = ""
    images: int = 0
    least: float = np.inf
    most: float = -np.inf
    low: float = np.inf
    high: float = -np.inf
    channels: dict[int, Range] = field(default_factory=dict)

    def add(self, values: np.ndarray) -> None:
        """The values of one image, or of several. Raises UserError for integers among floats, which share no scale."""
        kind = "float" if values.dtype.kind == "f" else "16-bit" if values.dtype.itemsize == 2 else "integer"
        if self.kind and (kind == "float") != (self.kind == "float"):
            raise UserError(f"{self.kind} images among {kind} ones, whose values share no scale: give data.range=")
        self.kind, self.images = self.kind or kind, self.images + 1
        self.least, self.most = min(self.least, float(values.min())), max(self.most, float(values.max()))
        self.low, self.high = _wider((self.low, self.high), values)

    def add_channels(self, planes: np.ndarray) -> None:
        """Those of some images by channel, (C, ...)."""
        for channel, values in enumerate(planes):
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

    def said(self, scale: Range) -> str:
        """The line's part on the values and their scale."""
        text = f"values {number(self.least)} to {number(self.most)} are scaled to 8 bits by data.range={written(scale)}"
        if self.high > self.low and (levels := _levels((self.low, self.high), scale)) < FEW:
            better = (self.low, self.high) if self.kind == "float" else (floor(self.low), ceil(self.high))
            text += (
                f"; nearly all pixels lie in {levels} of the 256 levels that the views see: "
                f"data.range={written(better)} spreads them over all"
            )
        elif poor := [n + 1 for n, used in self.channels.items() if used[1] > used[0] and _levels(used, scale) < POOR]:
            text += (
                f"; nearly all pixels of channel {', '.join(map(str, poor))} lie in fewer than {POOR} of the 256 "
                "levels: all channels share one range, so write these in another unit"
            )
        return text


def _wider(known: Range, values: np.ndarray) -> Range:
    """The range known, extended to all of the values but a thousandth at either end."""
    flat = values.reshape(-1)
    some = np.sort(flat[:: max(1, len(flat) // _ENOUGH)])
    tail = int(_TAIL * len(some))
    return min(known[0], float(some[tail])), max(known[1], float(some[-1 - tail]))


def _levels(used: Range, scale: Range) -> int:
    """The number of the 256 levels that a part of the range takes."""
    return 1 + round((LEVELS - 1) * (min(used[1], scale[1]) - max(used[0], scale[0])) / (scale[1] - scale[0]))
