"""Feature cache on disk: one folder per key, filled block by block, published when complete, resumed after a kill.

`ROOT/KEY.part/` is incomplete; `ROOT/KEY/` is complete: it is renamed to this after its index was written. Where the
disk has no locks, each machine has an incomplete folder of its own, `ROOT/KEY.MACHINE.part/`.
"""

import errno
import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.loader import Parts
from sslkit.errors import UserError
from sslkit.files.writing import MACHINE, has_locks, of_this_process, refusal
from sslkit.terminal import say

FORMAT = 2
INDEX, ROWS, LABELS, IDS, GROUPS = "index.json", "features.npy", "labels.npy", "ids.npy", "groups.npy"
DIGESTS = "pixel_digests.npy"
_FLUSH_SECONDS = 5.0


class Partial:
    """An incomplete folder: rows in blocks, each marked as done once it is on the disk.

    Blocks marked by an earlier process stay done; each process of a job fills its own blocks.
    """

    def __init__(self, root: Path, key: str, n: int, width: int, block: int) -> None:
        self.folder = root / f"{key}.part"
        self.n, self.block = n, block
        self.blocks = -(-n // block)
        # The block size is in the names: marks made with another block size are invalid.
        self._shapes = {
            "x": (ROWS, np.float32, (n, width)),
            "kept": ("kept.npy", np.bool_, (n,)),
            "digests": (DIGESTS, np.int64, (n,)),
            "done": (f"done-{block}.npy", np.bool_, (self.blocks,)),
        }
        self._unmarked: list[int] = []
        self._flushed = time.monotonic()

    def prepare(self) -> None:
        """Create the files, with their space on the disk, or reuse those of an earlier process if they fit.

        Raises UserError if the disk is full: rows written to a file without space would end the process by a signal.
        """
        if not (self.folder.is_dir() and all(self._fits(*shape) for shape in self._shapes.values())):
            fresh = self.folder.with_name(f"{self.folder.name}.{of_this_process()}")
            try:
                _remove(self.folder)
                fresh.mkdir(parents=True)
                for name, dtype, shape in self._shapes.values():
                    np.lib.format.open_memmap(fresh / name, mode="w+", dtype=dtype, shape=shape).flush()
                    _reserve(fresh / name)
                os.replace(fresh, self.folder)
            except OSError as error:
                raise unwritten(self.folder.parent, error) from error
            finally:
                shutil.rmtree(fresh, ignore_errors=True)

    def _fits(self, name: str, dtype: Any, shape: tuple[int, ...]) -> bool:
        try:
            array = np.load(self.folder / name, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return False
        return array.shape == shape and array.dtype == dtype

    def open(self, rank: int = 0, world_size: int = 1) -> Parts:
        """Open the files and return the rows of each block that this process still has to fill."""
        self.x, self.kept, self.digests, self.done = (
            np.load(self.folder / s[0], mmap_mode="r+") for s in self._shapes.values()
        )
        blocks = np.flatnonzero(~np.asarray(self.done))[rank::world_size]
        starts = blocks * self.block
        return Parts(len(blocks), lambda part: range(starts[part], min(starts[part] + self.block, self.n)))

    def write(self, start: int, x: np.ndarray, kept: np.ndarray, digests: np.ndarray) -> None:
        """Write a block from row `start`: x (b, D) features; kept (b,) False for unreadable rows; digests (b,)."""
        for array, block in ((self.x, x), (self.kept, kept), (self.digests, digests)):
            array[start : start + len(x)] = block
        self._unmarked.append(start // self.block)
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        self.x.flush()
        self.kept.flush()
        self.digests.flush()
        self.done[self._unmarked] = True
        self.done.flush()
        self._unmarked, self._flushed = [], time.monotonic()

    def publish(self, target: Path, beside: dict[str, np.ndarray], about: dict[str, Any]) -> None:
        """Drop the unreadable rows, write labels and index, and rename the folder to `target`.

        Raises UserError if the disk is full; the blocks stay done.
        """
        if not self.done.all():
            raise RuntimeError(f"{(~self.done).sum()} blocks of {self.folder} are not filled")
        compact = self.folder / "compact.npy"
        try:
            self._publish(target, compact, beside, about)
        except OSError as error:
            compact.unlink(missing_ok=True)
            raise unwritten(self.folder.parent, error) from error

    def _publish(self, target: Path, compact: Path, beside: dict[str, np.ndarray], about: dict[str, Any]) -> None:
        kept = np.asarray(self.kept)
        for name, array in {**beside, DIGESTS: np.array(self.digests)}.items():
            np.save(self.folder / name, array[kept])
        if not kept.all():
            np.save(compact, self.x[kept])
            os.replace(compact, self.folder / ROWS)
        for name in ("kept.npy", f"done-{self.block}.npy"):
            (self.folder / name).unlink()
        (self.folder / INDEX).write_text(json.dumps({**about, "format": FORMAT, "files": _checksums(self.folder)}))
        for path in self.folder.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        _remove(target)
        os.replace(self.folder, target)


def begun(root: Path, key: str) -> str:
    """Return the name, without `.part`, of this machine's incomplete folder of a key. Raises UserError."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        return key if has_locks(root) else f"{key}.{MACHINE}"
    except OSError as error:
        raise unwritten(root, error) from error


def unwritten(root: Path, error: OSError) -> UserError:
    return refusal(error)(
        f"cannot write the feature cache {root}: {error.strerror or error}; finished blocks are kept: make room and "
        "type the command again, or give cache=FOLDER on another disk"
    )


def _reserve(path: Path) -> None:
    """Take the space of a file on the disk. Raises OSError if there is too little; some file systems cannot tell."""
    if not hasattr(os, "posix_fallocate"):
        return
    with path.open("r+b") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise


def _remove(path: Path) -> None:
    """Remove a folder, or the file or link in its place; do nothing if it does not exist."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def read_whole(folder: Path) -> dict[str, Any] | None:
    """Return the arrays and the index of a published folder; None if it is missing or incomplete.

    x is memory-mapped. For a damaged folder, log a warning and return None.
    """
    if not folder.is_dir():
        return None  # `publish` replaces a file of that name
    try:
        about = json.loads((folder / INDEX).read_text())
        if about["format"] == FORMAT and about["files"] == _checksums(folder):
            return opened(folder)
        reason = "its files are not those that were written"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, EOFError) as error:
        reason = f"{type(error).__name__}: {error}"  # a damaged index can raise anything
    say.warning(f"the feature cache {folder} is damaged ({reason}): extracting again")
    return None


def opened(folder: Path) -> dict[str, Any]:
    """Like `read_whole`, without checks, for a folder that this process has just published."""
    about = json.loads((folder / INDEX).read_text())
    arrays = {name: np.load(folder / name, allow_pickle=False) for name in about["files"] if name != ROWS}
    return {**about, **arrays, ROWS: np.load(folder / ROWS, mmap_mode="r", allow_pickle=False)}


def _checksums(folder: Path) -> dict[str, str]:
    """Return size and sha256 of each file; for the features of 64 sampled positions, as they may be many gigabytes."""
    sums = {}
    for path in sorted(folder.glob("*.npy")):
        size = path.stat().st_size
        digest = hashlib.sha256(str(size).encode())
        with path.open("rb") as file:
            if path.name != ROWS or size < 1 << 20:
                digest.update(file.read())
            else:
                for place in np.linspace(0, size - 4096, 64).astype(np.int64):
                    file.seek(int(place))
                    digest.update(file.read(4096))
        sums[path.name] = digest.hexdigest()
    return sums
