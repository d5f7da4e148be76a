"""The loader of a run, made once Lightning knows this process's rank."""

from typing import Any

import pytorch_lightning as pl
import torch

from sslkit.data.images import Images
from sslkit.data.loader import TimedLoader, make_loader
from sslkit.data.views.cropped import CroppedImages
from sslkit.training.config import Config
from sslkit.training.data import Data


class Loading(pl.LightningDataModule):
    """rows: the data set to load. loader: the result of `train_dataloader`, for timing."""

    def __init__(self, config: Config, data: Data, rows: Images | CroppedImages) -> None:
        super().__init__()
        self.config, self.data, self.rows = config, data, rows
        self.loader: TimedLoader | None = None

    def train_dataloader(self) -> TimedLoader:
        self.loader = make_loader(
            self.rows,
            batch_size=self.config.data.batch_size,
            seed=self.config.seed,
            workers=self.config.data.workers,
            rank=self.trainer.global_rank,
            world_size=self.trainer.world_size,
        )
        return self.loader

    def transfer_batch_to_device(self, batch: dict[str, Any], device: torch.device, dataloader_idx: int) -> dict:
        """Keep the aspects on the CPU, as `Crops` their boxes: views are drawn there, and no step waits for them."""
        return {**super().transfer_batch_to_device(batch, device, dataloader_idx), "aspect": batch["aspect"]}
