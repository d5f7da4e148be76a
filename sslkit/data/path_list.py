"""Many paths in little memory."""

import os
from collections.abc import Iterator
from itertools import pairwise

import numpy as np


class PathList:
    """Paths in one block of bytes: a million take some 60 MB, and forked workers do not copy them."""

    def __init__(self, paths: list[str]) -> None:
        encoded = [os.fsencode(path) for path in paths]
        self._block = b"".join(encoded)
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, row: int) -> str:
        return os.fsdecode(self._block[self._ends[row] : self._ends[row + 1]])

    def encoded(self) -> Iterator[bytes]:
        """All paths; faster than one by one."""
        return (self._block[begin:end] for begin, end in pairwise(self._ends.tolist()))

    def take(self, rows: np.ndarray) -> "PathList":
        """The paths of some rows (n,) int64, in their order."""
        return PathList([self[row] for row in rows.tolist()])
