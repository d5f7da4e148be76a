"""Many paths in little memory."""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

_AT_ONCE = 2**16  # paths that are taken at a time: for each of their letters there are two numbers meanwhile


class PathList:
    """Paths in one block of bytes: a million take some 60 MB, and forked workers do not copy them."""

    def __init__(self, paths: list[str]) -> None:
        encoded = [os.fsencode(path) for path in paths]
        self._block = b"".join(encoded)
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)

    @classmethod
    def concatenate(cls, lists: "Sequence[PathList]") -> "PathList":
        """The paths of several lists, one after the other."""
        lengths = np.concatenate([[0], *(np.diff(paths._ends) for paths in lists)])
        return cls.of_block(b"".join(paths._block for paths in lists), np.cumsum(lengths, dtype=np.int64))

    @classmethod
    def of_block(cls, block: bytes, ends: np.ndarray) -> "PathList":
        """block: the encoded paths, one after the other. ends: (N + 1,) int64 the place where each ends, 0 first."""
        paths = cls([])
        paths._block, paths._ends = block, ends
        return paths

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, row: int) -> str:
        return os.fsdecode(self._block[self._ends[row] : self._ends[row + 1]])

    def iter_bytes(self) -> Iterator[bytes]:
        """All paths; faster than one by one."""
        return (self._block[begin:end] for begin, end in pairwise(self._ends.tolist()))

    def part(self, start: int, stop: int) -> "PathList":
        """The paths from `start` to `stop`."""
        block = self._block[self._ends[start] : self._ends[stop]]
        return PathList.of_block(block, self._ends[start : stop + 1] - self._ends[start])

    def take(self, rows: np.ndarray) -> "PathList":
        """The paths of some rows (n,) int64, in their order."""
        letters, lengths = np.frombuffer(self._block, np.uint8), np.diff(self._ends)[rows]
        ends = np.cumsum(np.append(0, lengths), dtype=np.int64)
        shifts = self._ends[rows] - ends[:-1]  # of the letters of each path, from their new places
        blocks = [
            letters[np.arange(ends[start], ends[stop]) + np.repeat(shifts[start:stop], lengths[start:stop])].tobytes()
            for start, stop in pairwise([*range(0, len(rows), _AT_ONCE), len(rows)])
        ]
        return PathList.of_block(b"".join(blocks), ends)


def encode_texts(texts: Iterable[str]) -> np.ndarray:
    """Texts, with bytes of file names that are no text, as an array (N,) of bytes that a file can hold."""
    return np.array([os.fsencode(text) for text in texts], dtype=np.bytes_)


def decode_texts(array: np.ndarray) -> list[str]:
    """The texts of `encode_texts`."""
    return list(map(os.fsdecode, array.tolist()))
