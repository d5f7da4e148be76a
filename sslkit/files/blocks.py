"""Arrays on the disk whose rows are computed block by block, by one process or several; a kill loses seconds."""

import errno
import mmap
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from sslkit.errors import UserError
from sslkit.files.store import Store, npz_codec
from sslkit.files.writing import MACHINE, has_locks, of_this_process, sync, unwritable

_FLUSH_SECONDS = 5.0  # between two files: the most that a kill loses
_ZEROS = bytes(2**20)
_INDEX = "index"


class Parts(Sequence[list[int]]):
    """Rows in parts, each a list that is made when it is asked for: those of ten million rows would fill 0.4 GB.

    count: number of parts. rows_of: the rows of a part by its number.
    """

    def __init__(self, count: int, rows_of: Callable[[int], Iterable[int]]) -> None:
        self._count, self._rows_of = count, rows_of

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, part: int) -> list[int]:
        if not 0 <= part < self._count:
            raise IndexError(f"part {part} of {self._count}")
        return list(map(int, self._rows_of(part)))


class Blocks:
    """n rows that are computed in blocks. A folder keeps those that are finished until all are: a kill loses seconds.

    Each process writes files of its own, whole, every few seconds: a network disk caches pages, and of two machines
    that write into one file the last may undo what the other wrote.
    folder: see `path_in_work`. block: rows of a block; of another size all begin anew. what: for messages.
    """

    def __init__(self, folder: Path, n: int, block: int, what: str) -> None:
        self.folder, self.n, self.block, self.what = folder, n, block, what
        self._new: list[dict[str, np.ndarray]] = []
        self._flushed = time.monotonic()

    def open(self, place: int = 0, count: int = 1) -> Parts:
        """Return what is `left` to this one of `count` processes: the rows of each of its blocks."""
        if not self.folder.is_dir():
            remove(self.folder)
        done = np.zeros(-(-self.n // self.block), bool)
        for arrays in self.read_done():
            done[arrays[_INDEX] // self.block] = True
        starts = np.flatnonzero(~done)[place::count] * self.block
        self.left = Parts(len(starts), lambda part: range(starts[part], min(starts[part] + self.block, self.n)))
        return self.left

    def write(self, rows: Sequence[int], **arrays: np.ndarray) -> None:
        """Keep a block: its rows of each array."""
        self._new.append({_INDEX: np.array(rows), **arrays})
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the blocks that were finished since the last time. Raises UserError if the disk is full."""
        if self._new:
            arrays = {name: np.concatenate([block[name] for block in self._new]) for name in self._new[0]}
            self._store(self.folder / f"{self.block}-{of_this_process()}.npz").write(arrays)
        self._new, self._flushed = [], time.monotonic()

    def discard(self) -> None:
        """Forget all blocks."""
        remove(self.folder)
        self._new = []

    def check_room(self, size: int) -> None:
        """Raise UserError if the disk lacks room for rows of `size` bytes: the blocks that are left, and the whole."""
        if size * (len(self.left) * self.block + self.n) > shutil.disk_usage(self.folder.parent).free:
            raise self._unwritable(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    def read_done(self, *names: str) -> Iterator[dict[str, np.ndarray]]:
        """Blocks that are done, also by others, some at a time: these arrays or all, and as "index" (m,) the rows."""
        for path in sorted(self.folder.glob(f"{self.block}-*.npz")):
            if (arrays := self._store(path, *names).read()) is not None:
                yield arrays

    def _store(self, path: Path, *names: str) -> Store[dict[str, np.ndarray]]:
        codec = npz_codec(dict, dict, compressed=False, names=(_INDEX, *names) if names else ())
        return Store(path, f"a part of {self.what}", codec)

    def join(self, name: str, array: np.ndarray, at: np.ndarray | None = None) -> np.ndarray:
        """Copy one array of all blocks into `array`, and return it.

        at: (n,) row of `array` for each row, below 0 to leave it out. Raises RuntimeError unless every block is done.
        """
        left = np.ones(self.n, bool)
        for arrays in self.read_done(name):
            places = arrays[_INDEX] if at is None else at[arrays[_INDEX]]
            array[places[places >= 0]] = arrays[name][places >= 0]
            left[arrays[_INDEX]] = False
            release(array)
        if left.any():
            raise RuntimeError(f"{left.sum()} rows of {self.folder} are not filled")
        return array

    @contextmanager
    def publish(self, target: Path) -> Iterator[Path]:
        """A path for the whole, a file or a folder of files, which is synced and renamed to `target` at the end.

        Raises UserError if the disk is full; the blocks stay.
        """
        whole = self.folder / "whole"
        try:
            remove(whole)
            yield whole
            for file in whole.iterdir() if whole.is_dir() else [whole]:
                sync(file)
            remove(target)
            os.replace(whole, target)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> UserError:
        remedy = "finished blocks are kept: make room and type the command again, or "
        return unwritable(self.what, self.folder.parent, error, remedy)


def path_in_work(path: Path) -> Path:
    """Return the folder for what is unfinished of a file or folder: of each machine where the disk has no locks."""
    return path.with_name(f"{path.name}.part" if has_locks(path.parent) else f"{path.name}.{MACHINE}.part")


def create_npy(path: Path, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """Create an .npy file of zeros, and return it memory-mapped. Raises OSError if the disk has too little space.

    `numpy.save` does not say that a disk is full.
    """
    dtype = np.dtype(dtype)
    with path.open("wb") as file:
        about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, about)
        reserve(file, dtype.itemsize * int(np.prod(shape)))
    return np.load(path, mmap_mode="r+")


def release(array: np.ndarray) -> None:
    """Let this process forget the pages of an array that is memory-mapped as a whole; the file keeps its values."""
    is_whole = isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap) and array.mode != "c"
    if is_whole and hasattr(mmap, "MADV_DONTNEED"):  # which some systems lack
        array.base.madvise(mmap.MADV_DONTNEED)


def reserve(file: IO[bytes], size: int) -> None:
    """Append zeros whose space on the disk is taken now: a memory map without it would end the process by a signal.

    Raises OSError if there is too little.
    """
    file.flush()
    try:
        os.posix_fallocate(file.fileno(), file.tell(), size)
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        for start in range(0, size, len(_ZEROS)):
            file.write(_ZEROS[: size - start])
        file.flush()


def remove(path: Path) -> None:
    """Remove a folder, or the file or link in its place; do nothing if it does not exist."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
