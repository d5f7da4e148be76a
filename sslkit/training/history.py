"""The metrics of a run over time: metrics.csv, TensorBoard, the lines of each epoch on the terminal."""

import csv
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from sslkit.files.writing import write_whole
from sslkit.terminal import say
from sslkit.training import loggers
from sslkit.training.epoch_lines import Epoch, epoch_lines
from sslkit.training.loading import Loading

MOST_STEPS, ROWS = 20, 200  # steps between two rows, and rows of the loss in a short run


class History(pl.Callback):
    """Collects the loss terms every `log_every` steps and the values passed to `note` at the end of an epoch.

    log_every: "auto" takes 20 steps, and fewer in a short run, so that it has about 200 rows.
    metrics.csv is rewritten at every epoch and its rows are saved in the checkpoint: a resumed run has one curve.
    """

    def __init__(self, folder: Path, loading: Loading, *, log_every: int | str) -> None:
        self.folder, self.loading, self.log_every = folder, loading, log_every
        self.rows: list[dict[str, float]] = []
        self.pending: list[dict[str, Tensor]] = []
        self.noted: dict[str, float] = {}
        self.terms: list[str] = []
        self.seconds = 0.0
        self.started = (0.0, 0.0, 0)

    def note(self, **values: float) -> None:
        """Add values to the row of this epoch."""
        self.noted |= values

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.log_every == "auto":
            batches = trainer.num_training_batches * trainer.max_epochs
            self.log_every = max(trainer.accumulate_grad_batches, min(MOST_STEPS, batches // ROWS))

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.started = (time.perf_counter(), self.loading.loader.waited, self.loading.loader.images)
        self.noted = {}

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        watched = {k: v.detach() for k, v in module.method.watched().items()}
        self.pending.append({**outputs["terms"], **watched})
        self.terms = [k for k in outputs["terms"] if k != "loss"]
        done = batch_idx + 1
        # The last row of an epoch includes the remaining steps: a mean of two steps would be a spike in the curve.
        if done % self.log_every == 0 and trainer.num_training_batches - done >= self.log_every:
            self._flush(trainer, module)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._flush(trainer, module)
        start, waited, images = self.started
        seconds = time.perf_counter() - start
        self.seconds += seconds
        rate = (self.loading.loader.images - images) * trainer.world_size / seconds
        self.note(images_per_second=rate, waiting=(self.loading.loader.waited - waited) / seconds)

    def close_epoch(self, trainer: pl.Trainer) -> None:
        """Add the epoch's row, write the file and log its lines. Call after all callbacks have noted their values."""
        self._add({"epoch": trainer.current_epoch + 1, "step": trainer.global_step, **self.noted}, trainer)
        if trainer.is_global_zero:
            self.write()
            say.lines(self.lines(trainer))

    def write(self) -> None:
        """Write metrics.csv whole."""
        write_csv(self.folder / "metrics.csv", self.rows)

    def lines(self, trainer: pl.Trainer) -> str:
        """The last epoch in words; see `epoch_lines`."""
        number = trainer.current_epoch + 1
        latest = self._latest(number)
        terms = {name: latest[name] for name in self.terms if name in latest}
        unit, k = self.loading.data.unit, self.loading.config.eval.k
        epoch = Epoch(number, trainer.max_epochs, self.noted, latest["loss"], terms, k, unit)
        return epoch_lines(epoch, trainer.lightning_module.method.weights())

    def _latest(self, epoch: int) -> dict[str, float]:
        """Means of the loss terms over the rows of the last 20 steps of an epoch, or over its last row."""
        rows = [row for row in self.rows if row["epoch"] == epoch and "loss" in row]
        rows = [row for row in rows if row["step"] > rows[-1]["step"] - MOST_STEPS]
        return {key: fmean(row[key] for row in rows) for key in rows[-1] if key in (*self.terms, "loss")}

    def _flush(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Add the means over the steps since the last row; numbers leave the device only here."""
        if not self.pending:
            return
        keys = list(dict.fromkeys(k for step in self.pending for k in step))  # not every step has all keys
        means = [torch.stack([step[k].float() for step in self.pending if k in step]).mean() for k in keys]
        means = dict(zip(keys, torch.stack(means).tolist(), strict=True))
        self.pending = []
        lr = trainer.optimizers[0].param_groups[0]["lr"]
        self._add({"epoch": trainer.current_epoch + 1, "step": trainer.global_step, **means, "lr": lr}, trainer)

    def _add(self, row: dict[str, float], trainer: pl.Trainer) -> None:
        self.rows.append(row)
        if trainer.is_global_zero:
            loggers.log(trainer.loggers, {k: v for k, v in row.items() if k != "step"}, int(row["step"]))

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "seconds": self.seconds, "terms": self.terms}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows, self.seconds, self.terms = state["rows"], state["seconds"], state["terms"]


def write_csv(path: Path, rows: list[dict[str, float]]) -> None:
    """Write rows with different keys under one header, whole or not at all."""
    columns = list(dict.fromkeys(k for row in rows for k in row))
    with write_whole(path) as partial, open(partial, "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
