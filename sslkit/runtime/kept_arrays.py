"""Arrays in the cache that are named by their content: computed once, in parts by the ranks, and written whole."""

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from sslkit.errors import UserError
from sslkit.files.writing import ELSEWHERE, NoLock, lock, refusal
from sslkit.runtime.distributed import rank, world_size
from sslkit.runtime.waiting import Others, from_all, together
from sslkit.terminal import say

_CHUNK = 2**22  # bytes of a part that are copied at once
_LATE = 90.0  # seconds that a network disk may take to show a new file
Compute = Callable[[range], Iterable[np.ndarray]]


def key_of(*about: object) -> str:
    """A name of 32 hexadecimal digits for values; arrays count with their shape, type and content."""
    digest = hashlib.sha256()
    for value in about:
        if isinstance(value, np.ndarray):
            digest.update(f"{value.shape}{value.dtype}".encode())
            for start in range(0, len(value), 4096):
                digest.update(np.ascontiguousarray(value[start : start + 4096]))
        else:
            digest.update(f"{value}\n".encode())
    return digest.hexdigest()[:32]


def stored(path: Path, rows: int | None, compute: Compute, *, what: str, unit: int | None = None) -> np.ndarray:
    """Read the float32 array of a .npy file, memory-mapped; if there is none, compute and write it first.

    rows: of the array; None: any number, for a single block.
    compute: gives the blocks of a range of the rows, in order.
    unit: each rank computes its part of the rows, a multiple of `unit`, and the parts are joined; None: the first rank
        that sees this disk computes all of them.
    A run that computes the same file is waited for. All ranks must call this, and none times out.
    Raises UserError if the file cannot be written, and on every rank if one fails.
    """
    found = _read(path, rows)
    if found is None and path.exists():
        say.warn(f"{path} is damaged; computing {what} again", stacklevel=3)
    if all(from_all(what, found is not None)):
        return found
    place, count = _sharers(path.parent, what)
    divided = unit is not None and 1 < count <= rows // unit
    held: FileLock | NoLock = NoLock()
    try:
        with together(what), _named(path, what):
            if place == 0:
                held = _acquired(path, what)
        with together(what) as others, _named(path, what):
            found = _read(path, rows)
            if found is None and (divided or place == 0):
                own = _share(rows, place, count, unit) if divided else range(rows or 1)
                target = _part(path, place, count) if divided else path
                if not divided or _read(target, len(own)) is None:  # a part of a run that was killed
                    _write(target, _checking(compute(own), others), rows if rows is None else len(own))
        with together(what), _named(path, what):
            if found is None and place == 0:
                _join(path, [_part(path, number, count) for number in range(count)] if divided else [], rows)
    finally:
        held.release()
    return _visible(path, rows, what) if found is None else found


def _sharers(folder: Path, what: str) -> tuple[int, int]:
    """This rank's place among the ranks that see the same folder, and their number."""
    if world_size() == 1:
        return 0, 1
    with together(what), _named(folder, what):
        folder.mkdir(parents=True, exist_ok=True)
        # The name tells folders of the same path on two machines apart, and this run from others.
        handle, mark = tempfile.mkstemp(dir=folder, prefix=f".rank-{rank()}-")
        os.close(handle)
    try:
        marks = from_all(what, Path(mark).name)
        with together(what):  # the marks stay until all have looked
            see = [other for other, name in enumerate(marks) if (folder / name).exists()]
    finally:
        Path(mark).unlink(missing_ok=True)
    return see.index(rank()), len(see)


def _acquired(path: Path, what: str) -> FileLock | NoLock:
    held = lock(path.with_name(f".{path.stem}.lock"))
    try:
        held.acquire(blocking=False)
    except Timeout:
        say.line(f"another process is computing {what} ({path}): waiting for it")
        held.acquire()
    return held


def _share(rows: int, place: int, count: int, unit: int) -> range:
    starts = [number * (rows // unit) // count * unit for number in range(count)] + [rows]
    return range(starts[place], starts[place + 1])


def _part(path: Path, place: int, count: int) -> Path:
    return path.with_name(f".{path.stem}-{place}-of-{count}.npy")


def _checking(blocks: Iterable[np.ndarray], others: Others) -> Iterator[np.ndarray]:
    for block in blocks:
        yield block
        others.check()


@contextlib.contextmanager
def _named(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise refusal(error)(f"cannot write {what} to {path}: {error}; {ELSEWHERE}") from error


def _visible(path: Path, rows: int | None, what: str) -> np.ndarray:
    """Read what another rank has just written; a network disk may show it a little later."""
    end = time.monotonic() + _LATE
    while (found := _read(path, rows)) is None:
        if time.monotonic() > end:
            raise UserError(f"{path} was written by another process and cannot be read here: {ELSEWHERE}")
        time.sleep(0.2)
        os.listdir(path.parent)  # lets a network disk look again
    return found


def _read(path: Path, rows: int | None) -> np.ndarray | None:
    if not path.exists():
        return None
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.ndim in (1, 2) and len(array) == (rows or len(array)) and array.dtype == np.float32:
            return array
    except (OSError, ValueError):
        pass
    return None


def _write(path: Path, blocks: Iterable[np.ndarray], rows: int | None) -> None:
    """Write with plain writes rather than a memory map: a full disk then raises instead of killing the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            for number, block in enumerate(blocks):
                if number == 0:
                    header = {"descr": "<f4", "fortran_order": False, "shape": (rows or len(block), *block.shape[1:])}
                    np.lib.format.write_array_header_1_0(file, header)
                file.write(np.ascontiguousarray(block, dtype="<f4").tobytes())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _join(path: Path, parts: list[Path], rows: int | None) -> None:
    """Write the rows of the parts in order; remove these parts, and those that killed runs left behind."""
    if parts:
        arrays = [np.load(part, mmap_mode="r", allow_pickle=False) for part in parts]
        _write(path, (block for array in arrays for block in _blocks(array)), rows)
    for part in path.parent.glob(f".{path.stem}-*-of-*.npy"):
        part.unlink(missing_ok=True)


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    step = max(1, _CHUNK // max(1, array[:1].nbytes))
    return (array[start : start + step] for start in range(0, len(array), step))
