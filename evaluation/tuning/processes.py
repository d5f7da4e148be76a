"""The processes of one training: this one alone, or those that torchrun started.

All ranks do the same calls: each trains on its part of every batch (`loop.fit`) and scores its part of the images
(`classifier.predict`); rank 0 alone claims and records runs (`recorded.py`), writes checkpoints, and tests detectors
and classifiers of clips. An error on one rank ends its process, and torchrun then ends the others.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from evaluation.features.checks import device_of
from evaluation.tuning.precision import FABRIC
from sslkit.runtime.context import Runtime
from sslkit.runtime.distributed import rank, world_size

if TYPE_CHECKING:
    from lightning_fabric import Fabric

PATIENCE = timedelta(days=2)  # rank 0 tests a detector alone, which on COCO takes longer than PyTorch's ten minutes


@contextmanager
def process_group(runtime: Runtime) -> Iterator[Runtime]:
    """Join the processes that torchrun started, for the block; yield the runtime with this process's device.

    With several processes "auto" is the GPU of LOCAL_RANK, if there is one.
    A block inside another one joins the same group. Raises UserError for an unavailable device.
    """
    own = device_of(runtime.device)
    ranks = int(os.environ.get("WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1
    inside = dist.is_available() and dist.is_initialized()
    if ranks == 1:
        yield replace(runtime, device=own)
        return
    fabric = fabric_of(own, ranks=ranks)
    fabric.launch()
    yield replace(runtime, device=fabric.device)
    if not inside:  # not after an error: the others may wait in the group, and torchrun ends them with this process
        dist.destroy_process_group()


def fabric_of(device: torch.device, precision: str = "float32", ranks: int | None = None) -> "Fabric":
    """Return a Fabric on the device, or on one device per process; it is not launched yet.

    precision: of the networks that it sets up, see `precision.py`. ranks: default is that of the open process group.
    """
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments import TorchElasticEnvironment
    from lightning_fabric.strategies import DDPStrategy, SingleDeviceStrategy

    class Here(SingleDeviceStrategy):
        """One device of any kind, which the caller has made the current one."""

        def setup_environment(self) -> None:
            """Leave the current device alone: Fabric's own knows CPUs and numbered GPUs only."""

    ranks = world_size() if ranks is None else ranks
    if ranks == 1:  # left to itself, Fabric would take the kind of a GPU that is not asked for
        kind = device.type if device.type in ("cuda", "mps") else "cpu"
        return Fabric(accelerator=kind, devices=1, strategy=Here(device=device), precision=FABRIC[precision])
    local = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    return Fabric(
        accelerator=device.type,
        devices=local,
        num_nodes=ranks // local,
        strategy=DDPStrategy(timeout=PATIENCE),
        precision=FABRIC[precision],
        plugins=[TorchElasticEnvironment()],
    )


def same_on_all_ranks(value: Any) -> bool:
    """Return whether the value, of any type that can be pickled, is equal on all ranks."""
    return all(other == value for other in _of_all_ranks(value))


def from_rank_0(value: Any) -> Any:
    """Return rank 0's value on every rank."""
    return _of_all_ranks(value if rank() == 0 else None)[0]


def union_of_ranks(items: Sequence[str]) -> list[str]:
    """Return the items of all ranks, each once, those of the first ranks first."""
    return list(dict.fromkeys(item for part in _of_all_ranks(list(items)) for item in part))


def rows_of_ranks(own: Tensor | None, n: int) -> Tensor:
    """Return the n rows of all ranks in order, on the CPU.

    own: the rows rank, rank + world_size, ... of the n; None if that is no row.
    """
    parts = [part for part in _of_all_ranks(own if own is None else own.cpu()) if part is not None]
    rows = parts[0].new_empty(n, *parts[0].shape[1:])
    for number, part in enumerate(parts):
        rows[number :: world_size()] = part
    return rows


def _of_all_ranks(value: Any) -> list[Any]:
    if world_size() == 1:
        return [value]
    found = [None] * world_size()
    dist.all_gather_object(found, value)
    return found
