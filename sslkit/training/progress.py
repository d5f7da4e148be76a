"""The progress bar: images per second, and the share of time spent waiting for data."""

import time
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ProgressBar
from tqdm import tqdm

from sslkit.training.loading import Loading


class Bar(ProgressBar):
    """One tqdm bar per epoch, only on a terminal; it is removed when the epoch's line is printed."""

    def __init__(self, loading: Loading) -> None:
        super().__init__()
        self.loading = loading
        self.bar: tqdm | None = None
        self.started = (0.0, 0.0)

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.started = (time.perf_counter(), self.loading.loader.waited)
        self.bar = tqdm(
            total=len(self.loading.loader) * self.loading.config.data.batch_size,
            desc=f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}",
            unit=f" {self.loading.data.unit}",
            leave=False,
            dynamic_ncols=True,
            disable=not trainer.is_global_zero,
        )

    def on_train_batch_end(self, *_: Any) -> None:
        start, waited = self.started
        share = (self.loading.loader.waited - waited) / max(time.perf_counter() - start, 1e-9)
        self.bar.set_postfix_str(f"waiting for data {100 * share:.0f} %", refresh=False)
        self.bar.update(self.loading.config.data.batch_size)

    def on_train_epoch_end(self, *_: Any) -> None:
        self.bar.close()
