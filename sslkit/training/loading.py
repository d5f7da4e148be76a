"""The loader of a run, made once the rank of this process is known."""

from typing import Any

import torch
from lightning_fabric.utilities import move_data_to_device

from sslkit.data.images import Images
from sslkit.data.loader import TimedLoader, make_loader
from sslkit.data.views.cropped import CroppedImages
from sslkit.runtime.loop import Loop
from sslkit.training.config import Config
from sslkit.training.data import Data


class Loading:
    """rows: the data set to load. loader: what `load` made, for timing."""

    def __init__(self, config: Config, data: Data, rows: Images | CroppedImages) -> None:
        self.config, self.data, self.rows = config, data, rows
        self.loader: TimedLoader | None = None

    def load(self, loop: Loop) -> TimedLoader:
        self.loader = make_loader(
            self.rows,
            batch_size=self.config.data.batch_size,
            seed=self.config.seed,
            workers=self.config.data.workers,
            rank=loop.rank,
            world_size=loop.world_size,
        )
        return self.loader


def to_device(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Move a batch but for the aspects, as `Crops` keep their boxes: views are drawn on the CPU, and no step waits."""
    return {**move_data_to_device(batch, device), "aspect": batch["aspect"]}
