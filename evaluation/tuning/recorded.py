"""Runs that train weights, each recorded once: by one process, by several side by side, or by all ranks together."""

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from evaluation.results.records import Records, check_fields, run_id
from evaluation.tuning.checkpoint import Checkpoint
from sslkit.files.writing import write_whole
from sslkit.runtime.context import SAVE_SECONDS
from sslkit.runtime.distributed import rank, world_size
from sslkit.runtime.waiting import from_first, together
from sslkit.zoo.weights import as_bytes

Key = Mapping[str, Any]


def each_recorded(
    keys: Sequence[Key], records: Records, work: Callable[[int], Mapping[str, Any]], needs: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return the record of every run, in order; each missing run is done once, by one of the processes at this file.

    In a process group all ranks do each run together, the first claims and records it, and all return it.
    work: index of a run -> values of its record. A run claimed by another process is waited for, and done here if that
    process dies. The checkpoint of a recorded run is deleted.
    needs: required fields of every record. Raises UserError for a record that lacks one, or is damaged.
    """
    what = f"the runs of {records.path}"

    def read_records() -> list[dict[str, Any]]:
        for key in keys:  # also of runs that were recorded just before their process was killed
            checkpoint_of(records.path, key).remove()
        stored = records.read()
        return [stored[run_id(key)] for key in keys]

    with closing(records.claim_unfinished(keys)) as runs:
        while (number := from_first(what, lambda: next(runs, None))) is not None:
            with together(what):  # the first may test what all have trained
                values = work(number)
                if rank() == 0:
                    records.add(keys[number], values)
                    checkpoint_of(records.path, keys[number]).remove()
    records_read = from_first(what, read_records)
    for record in records_read:
        check_fields(record, needs, records.path)
    return records_read


def checkpoint_of(records: Path, key: Key, seconds: float = SAVE_SECONDS) -> Checkpoint:
    """Return the checkpoint of a run, a hidden file beside the file of its records."""
    run = run_id(key)
    return Checkpoint(records.parent / f".{records.stem}-{run}.ckpt", f"{run} {world_size()} ranks", seconds)


def weights_of(records: Path, key: Key) -> Path:
    """Return the file of the weights that a run keeps, a hidden file beside the file of its records."""
    return records.parent / f".{records.stem}-{run_id(key)}.safetensors"


def write_network(net: nn.Module, file: Path) -> None:
    """Write the weights of a network, whole or not at all. Raises UserError if they cannot be written."""
    # each tensor on its own, as safetensors keeps none that share memory; a C4 detector's layer4 stands twice
    state = {name: value.detach().cpu().contiguous().clone() for name, value in net.state_dict().items()}
    with write_whole(file) as partial:
        partial.write_bytes(as_bytes(state, {}))


def of_ranks() -> dict[str, int]:
    """Return the entry of a key for the number of processes; nothing for one."""
    return {"ranks": world_size()} if world_size() > 1 else {}


@contextmanager
def open_folder(folder: str | Path | None) -> Iterator[Path]:
    """Yield the folder, or a temporary one that all ranks share."""
    if folder is not None:
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory() as scratch:
        yield Path(from_first("a temporary folder", lambda: scratch))
