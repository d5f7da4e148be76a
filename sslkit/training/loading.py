"""Batches of a run on their way to a step: the loader, the move to the device, and the files that it could not read."""

from dataclasses import dataclass, field
from typing import Any

import torch

from sslkit.data.loader import ResumableLoader, make_loader
from sslkit.data.sources.named import Images
from sslkit.data.views.cropped import CroppedImages
from sslkit.runtime.distributed import union_over_ranks
from sslkit.runtime.loop import Hook, Loop
from sslkit.terminal import say
from sslkit.terminal.say import counted
from sslkit.training.config import Config


def load(config: Config, rows: Images | CroppedImages, loop: Loop) -> ResumableLoader:
    """Make the loader of a run, once the rank of this process is known. rows: the data set to load."""
    if loop.is_main and loop.processes not in (None, loop.world_size):
        say.line(
            f"note      {counted(loop.world_size, 'process')} instead of {loop.processes}: the run goes on with "
            "the same batches, but sums are rounded otherwise, and dropout draws other numbers"
        )
    return make_loader(
        rows,
        batch_size=config.batch_size,
        seed=config.seed,
        workers=config.workers,
        rank=loop.rank,
        world_size=loop.world_size,
        device=loop.device.type,
        first=loop.batch,
    )


def to_device(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Move a batch, but for aspects and the boxes of `Crops`: views are drawn on the CPU, and no step waits."""
    from lightning_fabric.utilities import move_data_to_device

    # An array of numpy, since DDP moves every tensor that it is given.
    return {**move_data_to_device(batch, device), "aspect": batch["aspect"].numpy()}


@dataclass
class Unreadable(Hook):
    """Collects the paths that the loader could not read."""

    paths: set[str] = field(default_factory=set)

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        self.paths.update(batch["bad"])

    def before_save(self, loop: Loop) -> None:
        self.paths = set(union_over_ranks(self.paths))

    epoch_end = before_save

    def state(self) -> dict[str, Any]:
        return {"paths": sorted(self.paths)}

    def restore(self, state: dict[str, Any]) -> None:
        self.paths = set(state["paths"])
