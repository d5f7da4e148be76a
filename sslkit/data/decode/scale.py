"""The scale of pixels of more than 8 bits: one linear function to 0..255 for a whole data set, in all its splits.

Views are made of bytes, and 256 levels over the values that occur are enough for them. 256 levels over the values that
the type can hold are not: of 12 bits in a file of 16 they leave 16. So the range is that of the data set's values,
decided once for all images. Values outside are clipped.
"""

import warnings
from collections.abc import Sequence
from functools import lru_cache
from math import isfinite, isnan
from typing import Any

import numpy as np

from sslkit.data.decode.unreadable import UnreadableImage
from sslkit.errors import UserError

Range = tuple[float, float]
AUTO = "auto"
LEVELS = 256
BYTE = (0.0, 255.0)
_LONG = 1e15  # from here on whole numbers are written shorter


def checked(given: Any) -> Range | str | None:
    """The option `data.range`: two numbers, "auto" or None. Raises UserError for anything else."""
    if given is None or given == AUTO:
        return given
    is_pair = isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2
    if not is_pair or not all(isinstance(one, (int, float)) and isfinite(one) for one in given) or given[0] >= given[1]:
        raise UserError(f"data.range={given!r} must be two numbers that rise, such as [0,4095], auto or null")
    return float(given[0]), float(given[1])


def written(scale: Range) -> str:
    """A range as a command line writes it: `[0,4095]`."""
    return "[" + ",".join(map(number, scale)) + "]"


def number(value: float) -> str:
    """A value with at most seven digits, a whole one with all."""
    return str(int(value)) if float(value).is_integer() and abs(value) < _LONG else f"{value:.7g}"


def unused(scale: Range, name: str) -> str:
    """The line on a range that is given for 8 bits."""
    return f"{name}: data.range={written(scale)} is for images of more than 8 bits, and those found here have 8"


def to_bytes(values: np.ndarray, scale: Range) -> np.ndarray:
    """Finite values of any type, from `scale` to 0..255, rounded and clipped. Bytes and booleans have their own."""
    if values.dtype == np.uint8:
        return values
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype == np.uint16:
        return _table(scale)[values]
    return _scaled(values.astype(np.float32 if values.dtype == np.float16 else _wide(values.dtype)), scale)


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


def measured(values: np.ndarray, nodata: float | None) -> np.ndarray:
    """The values of the pixels that have one. nodata: what stands for none in this image, maybe NaN."""
    return values if nodata is None else values[~_is(values, nodata)]


def filled(values: np.ndarray, nodata: float | None, low: float) -> np.ndarray:
    """The values, and `low`, that of black, where a pixel has none."""
    if nodata is None or not (none := _is(values, nodata)).any():
        return values
    limits = np.iinfo(values.dtype) if values.dtype.kind in "iu" else np.finfo(values.dtype)
    return np.where(none, values.dtype.type(min(max(low, limits.min), limits.max)), values)


def _is(values: np.ndarray, nodata: float) -> np.ndarray:
    if isnan(nodata):
        return np.isnan(values)
    return values == (values.dtype.type(nodata) if values.dtype.kind == "f" else nodata)


def own(values: np.ndarray) -> Range:
    """The scale of one image that belongs to no set, or whose set seemed to have only 8 bits, with a warning.

    16 bits for integers, [0, 1] or [0, 255] for floats. Raises UnreadableImage for other values.
    """
    low, high = values.min(), values.max()
    is_float = values.dtype.kind == "f"
    if low < 0 or high > (255 if is_float else 65535):
        known = "in [0, 1] or [0, 255]" if is_float else "0 to 65535 (16 bits)"
        kind = "float" if is_float else "integer"
        raise UnreadableImage(f"{kind} pixels from {low:.9g} to {high:.9g}; must be {known}, or give data.range=")
    scale = (0.0, 65535.0) if not is_float else (0.0, 1.0) if high <= 1 else BYTE
    warnings.warn(
        f"an image of more than 8 bits, where no data.range= is known: it is read by data.range={written(scale)}",
        stacklevel=1,
    )
    return scale


def outside(values: np.ndarray, scale: Range) -> tuple[int, int]:
    """The number of values (N, ...) outside a range, and of the rows that have some."""
    clipped = (values < scale[0]) | (values > scale[1])
    return int(clipped.sum()), int(clipped.reshape(len(values), -1).any(axis=1).sum())


@lru_cache(maxsize=8)
def _table(scale: Range) -> np.ndarray:
    return _scaled(np.arange(2**16, dtype=np.float64), scale)


def _scaled(values: np.ndarray, scale: Range) -> np.ndarray:
    low, high = scale
    scaled = (values - values.dtype.type(low)) * values.dtype.type((LEVELS - 1) / (high - low))
    return np.rint(scaled.clip(0, LEVELS - 1)).astype(np.uint8)


def _wide(dtype: np.dtype) -> Any:
    """Floats that hold the differences of values of a type."""
    return np.float32 if dtype in (np.float32, np.int8, np.int16) else np.float64
