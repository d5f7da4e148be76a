"""Rows of several splits, one after the other, that are read when they are asked for: a list of them costs nothing."""

from collections.abc import Sequence

import numpy as np

from sslkit.data.images import Images
from sslkit.files.blocks import release

_AT_ONCE = 256  # rows that are read of a map: for each the system brings in some 64 KB


class Joined:
    """Arrays (n, ...) of the splits as one (N, ...), which may be memory-mapped; `joined[rows]` reads these rows."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self.arrays = arrays
        self.starts = np.cumsum([0, *map(len, arrays)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """rows: (m,) int64 from 0. Returns (m, ...)."""
        values = np.empty((len(rows), *self.arrays[0].shape[1:]), self.arrays[0].dtype)
        for start, array in zip(self.starts, self.arrays, strict=False):
            inside = np.flatnonzero((rows >= start) & (rows < start + len(array)))
            for first in range(0, len(inside), _AT_ONCE):
                some = inside[first : first + _AT_ONCE]
                values[some] = array[rows[some] - start]
                release(array)
        return values


class Names(Sequence[str]):
    """The path of each image that is a file of its own, else its name within its split."""

    def __init__(self, splits: Sequence[Images], *, are_files: bool) -> None:
        self.splits, self.are_files = splits, are_files
        self.starts = np.cumsum([0, *map(len, splits)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, row: int) -> str:
        row = range(len(self))[row]
        at = int(np.searchsorted(self.starts, row, "right")) - 1
        images, row = self.splits[at], row - int(self.starts[at])
        if self.are_files:
            return images.path(row)
        return images.image_name(row) if hasattr(images, "image_name") else f"{images.split}/{row}"
