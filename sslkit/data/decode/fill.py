"""Pixels without a value: those that a file's tags name, and those of a value that stands apart at an end of the range.

A scan's corners of -2000, or a map's border of -3.4e38, would take the range: of 256 levels the picture would have few.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan

import numpy as np

Spans = tuple[tuple[float, float], ...]  # (least, greatest) value that stands for none; both NaN for NaN
Fill = float | str
AUTO, NONE, TAGGED = "auto", "none", "tagged"
WORDS = (AUTO, NONE, TAGGED)

_ROUNDING = 1e-5  # relative: tags are texts, and -3.40282e38 is meant as the least number of 32 bits
_SHARE = 0.01  # of the pixels of an image: corners, borders and tiles hold more, hot pixels and burnt-in letters less
# The gap to the next value, in spans of all others; in pictures it is next to 0. -2000 around tissue of -1024 to 3071
# leaves 0.24. At the low end little is lost by an error: the value was black, and stays so. At the high end white would
# become black: saturated bone or sky is kept, unless all else lies in the lower half of the range.
_GAP_BELOW, _GAP_ABOVE = 1 / 8, 1.0
_LEVELS = 8  # values beside it, at least: masks and drawings of few values have none that stands for nothing
_SENTINEL = 1e30  # no unit of a picture reaches it


def is_filled(values: np.ndarray, spans: Spans) -> np.ndarray:
    """Return which of the values, of any shape, stand for none."""
    missing = np.zeros(values.shape, bool)
    for low, high in spans:
        if isnan(low):
            missing |= np.isnan(values)
        elif values.dtype.kind == "f":
            missing |= (values >= np.float64(low - _ROUNDING * abs(low))) & (
                values <= np.float64(high + _ROUNDING * abs(high))
            )
        else:
            missing |= (values >= low) & (values <= high)
    return missing


def present(values: np.ndarray, spans: Spans) -> np.ndarray:
    """The values of the pixels that have one; unchanged without spans."""
    return values[~is_filled(values, spans)] if spans else values


def replace_missing(values: np.ndarray, spans: Spans, level: float) -> np.ndarray:
    """The values, and `level`, that of black, where a pixel has none."""
    if not spans or not (none := is_filled(values, spans)).any():
        return values
    limits = np.iinfo(values.dtype) if values.dtype.kind in "iu" else np.finfo(values.dtype)
    return np.where(none, values.dtype.type(min(max(level, limits.min), limits.max)), values)


def spans_of(fill: Fill | None, tagged: Spans = ()) -> Spans:
    """The spans of an image: those of its tags, unless `fill` is "none", and a number that was found or given."""
    spans = () if fill is None or isinstance(fill, str) else ((float(fill), float(fill)),)
    return spans if fill == NONE else (*tagged, *spans)


@dataclass
class _End:
    """The greatest value of some images, the next one, and the largest share of an image that has it."""

    value: float = -np.inf
    next: float = -np.inf
    share: float = 0.0

    def add(self, values: np.ndarray) -> None:
        greatest = float(values.max())
        share = float((values == values.max()).mean())
        others = values[values < values.max()]
        below = float(others.max()) if others.size else -np.inf
        if greatest > self.value:
            self.next, self.share, self.value = max(below, self.value), share, greatest
        elif greatest == self.value:
            self.next, self.share = max(below, self.next), max(share, self.share)
        else:
            self.next = max(self.next, greatest)


@dataclass
class Ends:
    """The ends of the range of some images, for a value there that stands for none. low: of the negated values."""

    low: _End = field(default_factory=_End)
    high: _End = field(default_factory=_End)
    levels: set[float] = field(default_factory=set)

    def add(self, planes: Sequence[np.ndarray]) -> None:
        """The values of one image, of each of its planes."""
        for values in planes:
            wide = values.astype(np.float64).reshape(-1)
            self.high.add(wide)
            self.low.add(-wide)
            if len(self.levels) <= _LEVELS:
                self.levels.update(np.unique(wide)[: 2 * _LEVELS].tolist())

    def fill(self) -> float | None:
        """The value that stands for none; None if there is no such."""
        if len(self.levels) <= _LEVELS:
            return None
        least = -self.low.value
        if _stands_apart(self.low, self.high.value - -self.low.next, _GAP_BELOW):
            return least
        return self.high.value if _stands_apart(self.high, self.high.next - least, _GAP_ABOVE) else None


def _stands_apart(end: _End, span: float, gap: float) -> bool:
    """span: of all other values. 0 is black in a picture, and never none."""
    if abs(end.value) >= _SENTINEL:
        return True
    return end.value != 0 and end.share >= _SHARE and end.value - end.next >= gap * span > 0
