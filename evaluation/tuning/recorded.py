"""Runs that train weights, each recorded once: by one process, by several side by side, or by all ranks together."""

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evaluation.results.records import Records, each_once, run_id
from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.processes import from_rank_0
from sslkit.runtime.context import SAVE_SECONDS
from sslkit.runtime.distributed import rank, world_size

Key = Mapping[str, Any]


def each_recorded(
    keys: Sequence[Key],
    records: Records,
    work: Callable[[int], Mapping[str, Any]],
    needs: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return the record of every run, in order; each missing run is done once, and its checkpoint deleted.

    See `records.each_once`; in a process group all ranks do each run together, rank 0 records it, and all return it.
    """

    def done(number: int) -> None:
        checkpoint_of(records.path, keys[number]).remove()

    return each_once(keys, records, work, needs, done, rank() == 0, from_rank_0)


def checkpoint_of(records: Path, key: Key, seconds: float = SAVE_SECONDS) -> Checkpoint:
    """Return the checkpoint of a run, a hidden file beside the file of its records."""
    run = run_id(key)
    return Checkpoint(records.parent / f".{records.stem}-{run}.ckpt", f"{run} {world_size()} ranks", seconds)


def of_ranks() -> dict[str, int]:
    """Return the entry of a key for the number of processes; nothing for one."""
    return {"ranks": world_size()} if world_size() > 1 else {}


@contextmanager
def shared_folder(folder: str | Path | None) -> Iterator[Path]:
    """Yield the folder, or a temporary one that all ranks share."""
    if folder is not None:
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory() as own:
        yield Path(from_rank_0(own))
