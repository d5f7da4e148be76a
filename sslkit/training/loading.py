"""Batches of a run on their way to a step: the loader, the move to the device, and the files that it could not read."""

from dataclasses import dataclass, field
from typing import Any

import torch

from sslkit.data.loader import TimedLoader, make_loader
from sslkit.data.sources.named import Images
from sslkit.data.views.cropped import CroppedImages
from sslkit.runtime.loop import Hook, Loop
from sslkit.terminal import say
from sslkit.terminal.say import counted
from sslkit.training.config import Config
from sslkit.training.data import Data


@dataclass
class Loading:
    """The loader of a run, made once the rank of this process is known.

    rows: the data set to load. loader: what `load` made, for timing.
    """

    config: Config
    data: Data
    rows: Images | CroppedImages
    loader: TimedLoader | None = None

    def load(self, loop: Loop) -> TimedLoader:
        if loop.is_main and loop.processes not in (None, loop.world_size):
            say.line(
                f"note      {counted(loop.world_size, 'process')} instead of {loop.processes}: the run goes on with "
                "the same batches, but sums are rounded otherwise, and dropout draws other numbers"
            )
        self.loader = make_loader(
            self.rows,
            batch_size=self.config.data.batch_size,
            seed=self.config.seed,
            workers=self.config.data.workers,
            rank=loop.rank,
            world_size=loop.world_size,
            device=loop.device.type,
            first=loop.batch,
        )
        return self.loader


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
        if loop.world_size > 1:
            ranks: list[set[str]] = [set()] * loop.world_size
            torch.distributed.all_gather_object(ranks, self.paths)
            self.paths = set().union(*ranks)

    epoch_end = before_save

    def state(self) -> dict[str, Any]:
        return {"paths": sorted(self.paths)}

    def restore(self, state: dict[str, Any]) -> None:
        self.paths = set(state["paths"])
