"""Arrays of all ranks in the cache, computed once: whole by the first rank, or in blocks by each."""

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import numpy as np

from sslkit.errors import UserError
from sslkit.files.blocks import Blocks, Parts, create_npy, path_in_work
from sslkit.files.store import Codec, Store, npz_codec
from sslkit.files.writing import ELSEWHERE, unwritable
from sslkit.runtime.distributed import rank, world_size
from sslkit.runtime.waiting import Others, from_all, together

_LATE = 90.0  # seconds that a network disk may take to show a new file: NFS caches folders for up to 60
Value = TypeVar("Value")
Compute = Callable[[Sequence[Sequence[int]]], Iterable[np.ndarray]]


def compute_in_blocks(
    store: Store[Value],
    rows: int,
    block: int,
    fill: Callable[[Blocks, Others], None],
    publish: Callable[[Blocks, Path], None],
) -> Value:
    """Return what a store holds; if it holds nothing, the ranks compute it first, in blocks of rows.

    Ranks that see the same disk share the blocks, which outlast a kill. A run that makes the same is waited for.
    fill: writes the blocks that are left to a rank. publish: writes the whole to a path; the first rank calls it.
    All ranks must call this, and none times out. Raises UserError if the disk cannot be written, and on every rank if
    one fails.
    """
    what, value = store.what, store.read()
    if all(from_all(what, value is not None)):
        return value
    sharers = _sharers(store.path.parent, what)
    position = sharers.index(rank())
    with ExitStack() as held:
        folder = None
        with together(what):
            if position == 0:
                refused = held.enter_context(store.exclusive())
                if store.read() is None:
                    if refused:
                        raise refused
                    folder = path_in_work(store.path).name
        folder = from_all(what, folder)[sharers[0]]
        blocks = Blocks(store.path.with_name(folder), rows, block, what) if folder else None
        with together(what):  # before one is written, so that all divide the same
            if blocks:
                blocks.open(position, len(sharers))
        with together(what) as others:
            if blocks:
                try:
                    fill(blocks, others)
                finally:
                    blocks.flush()
        with together(what):
            if blocks and position == 0:
                if store.read() is None:  # else another machine was faster, on a disk without locks
                    with blocks.publish(store.path) as whole:
                        publish(blocks, whole)
                blocks.discard()
    return _visible(store)


def load_or_compute(
    path: Path, rows: int | None, compute: Compute, *, what: str, unit: int | None = None
) -> np.ndarray:
    """Read the float32 array of an .npy file, memory-mapped; if there is none, compute and write it first.

    rows: of the array; None: any number, for a single block.
    compute: gives the blocks of these rows, in order.
    unit: each rank computes blocks of so many rows; None: the first rank that sees this disk computes all as one.
    For several ranks, and for errors, see `compute_in_blocks`.
    """

    def read_array(file: Path) -> np.ndarray:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
        if array.ndim not in (1, 2) or len(array) != (rows or len(array)) or array.dtype != np.float32:
            raise ValueError(f"it holds {array.dtype} of shape {array.shape}")
        return array

    def fill(blocks: Blocks, others: Others) -> None:
        if blocks.left:
            parts = blocks.left if unit else [range(rows or 1)]
            for chunk, block in zip(blocks.left, compute(parts), strict=True):
                blocks.write(chunk, x=block if unit else block[None])
                others.check()

    def publish(blocks: Blocks, whole: Path) -> None:
        row = next(blocks.read_done())["x"].shape[1:]
        array = create_npy(whole, (rows, *row) if unit else row)
        blocks.join("x", array if unit else array[None])

    return compute_in_blocks(Store(path, what, Codec(read_array)), rows if unit else 1, unit or 1, fill, publish)


def load_or_compute_rows(
    path: Path | None,
    rows: int,
    compute: Callable[[Sequence[Sequence[int]]], Iterable[dict[str, np.ndarray]]],
    *,
    what: str,
    unit: int,
) -> dict[str, np.ndarray]:
    """Read the arrays of an .npz file into memory; if there is none, compute and write it first.

    Each array has a row for each of `rows`. path: None keeps nothing. compute: gives the blocks of these rows, in
    order. For several ranks, and for errors, see `compute_in_blocks`.
    """
    if path is None:
        blocks = [*compute(Parts(-(-rows // unit), lambda part: range(part * unit, min((part + 1) * unit, rows))))]
        return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    codec: Codec[dict[str, np.ndarray]] = npz_codec(dict, dict, compressed=False)

    def fill(blocks: Blocks, others: Others) -> None:
        for chunk, arrays in zip(blocks.left, compute(blocks.left) if blocks.left else (), strict=True):
            blocks.write(chunk, **arrays)
            others.check()

    def publish(blocks: Blocks, whole: Path) -> None:
        some = next(blocks.read_done())
        some.pop("index")
        codec.write(
            whole, {name: blocks.join(name, np.empty((rows, *of.shape[1:]), of.dtype)) for name, of in some.items()}
        )

    return compute_in_blocks(Store(path, what, codec), rows, unit, fill, publish)


def _sharers(folder: Path, what: str) -> list[int]:
    """The ranks that see the same folder as this one."""
    if world_size() == 1:
        return [0]
    with together(what):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # The name tells folders of the same path on two machines apart, and this run from others.
            handle, mark = tempfile.mkstemp(dir=folder, prefix=f".rank-{rank()}-")
        except OSError as error:
            raise unwritable(what, folder, error) from error
        os.close(handle)
    try:
        marks = from_all(what, Path(mark).name)
        with together(what):  # the marks stay until all have looked
            return [other for other, name in enumerate(marks) if (folder / name).exists()]
    finally:
        Path(mark).unlink(missing_ok=True)


def _visible(store: Store[Value]) -> Value:
    """Read what another rank has just written; a network disk may show it a little later."""
    end = time.monotonic() + _LATE
    while (value := store.read()) is None:
        if time.monotonic() > end:
            raise UserError(f"{store.path} was written by another process and cannot be read here: {ELSEWHERE}")
        time.sleep(0.2)
        os.listdir(store.path.parent)  # lets a network disk look again
    return value
