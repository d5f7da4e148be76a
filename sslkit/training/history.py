"""The metrics of a run over time: metrics.csv, TensorBoard, the lines of each epoch on the terminal."""

import csv
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from sslkit.files.writing import write_whole
from sslkit.runtime.loop import Hook, Loop
from sslkit.terminal import say
from sslkit.training import loggers
from sslkit.training.epoch_lines import Epoch, epoch_lines
from sslkit.training.loading import Loading

MOST_STEPS, ROWS = 20, 200  # steps between two rows, and rows of the loss in a short run


class History(Hook):
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

    def begin(self, loop: Loop) -> None:
        if self.log_every == "auto":
            self.log_every = max(loop.accumulate, min(MOST_STEPS, loop.batches * loop.epochs // ROWS))

    def epoch_begin(self, loop: Loop) -> None:
        self.started = (time.perf_counter(), self.loading.loader.waited, self.loading.loader.images)
        self.noted = {}

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        watched = {k: v.detach() for k, v in loop.module.method.watched().items()}
        self.pending.append({**outputs["terms"], **watched})
        self.terms = [k for k in outputs["terms"] if k != "loss"]
        done = loop.batch + 1
        # The last row of an epoch includes the remaining steps: a mean of two steps would be a spike in the curve.
        if done % self.log_every == 0 and loop.batches - done >= self.log_every:
            self._flush(loop)

    def epoch_end(self, loop: Loop) -> None:
        self._flush(loop)
        start, waited, images = self.started
        seconds = time.perf_counter() - start
        self.seconds += seconds
        rate = (self.loading.loader.images - images) * loop.world_size / seconds
        self.note(images_per_second=rate, waiting=(self.loading.loader.waited - waited) / seconds)

    def close_epoch(self, loop: Loop) -> None:
        """Add the epoch's row, write the file and log its lines. Call after all hooks have noted their values."""
        self._add({"epoch": loop.epoch + 1, "step": loop.step, **self.noted}, loop)
        if loop.is_main:
            self.write()
            say.lines(self.lines(loop))

    def write(self) -> None:
        """Write metrics.csv whole."""
        write_csv(self.folder / "metrics.csv", self.rows)

    def lines(self, loop: Loop) -> str:
        """The last epoch in words; see `epoch_lines`."""
        number = loop.epoch + 1
        latest = self._latest(number)
        terms = {name: latest[name] for name in self.terms if name in latest}
        unit, k = self.loading.data.unit, self.loading.config.eval.k
        epoch = Epoch(number, loop.epochs, self.noted, latest["loss"], terms, k, unit)
        return epoch_lines(epoch, loop.module.method.weights())

    def _latest(self, epoch: int) -> dict[str, float]:
        """Means of the loss terms over the rows of the last 20 steps of an epoch, or over its last row."""
        rows = [row for row in self.rows if row["epoch"] == epoch and "loss" in row]
        rows = [row for row in rows if row["step"] > rows[-1]["step"] - MOST_STEPS]
        return {key: fmean(row[key] for row in rows) for key in rows[-1] if key in (*self.terms, "loss")}

    def _flush(self, loop: Loop) -> None:
        """Add the means over the steps since the last row; numbers leave the device only here."""
        if not self.pending:
            return
        keys = list(dict.fromkeys(k for step in self.pending for k in step))  # not every step has all keys
        means = [torch.stack([step[k].float() for step in self.pending if k in step]).mean() for k in keys]
        means = dict(zip(keys, torch.stack(means).tolist(), strict=True))
        self.pending = []
        lr = loop.optimizer.param_groups[0]["lr"]
        self._add({"epoch": loop.epoch + 1, "step": loop.step, **means, "lr": lr}, loop)

    def _add(self, row: dict[str, float], loop: Loop) -> None:
        self.rows.append(row)
        if loop.is_main:
            loggers.log(loop.loggers, {k: v for k, v in row.items() if k != "step"}, int(row["step"]))

    def state(self) -> dict[str, Any]:
        return {"rows": self.rows, "seconds": self.seconds, "terms": self.terms}

    def restore(self, state: dict[str, Any]) -> None:
        self.rows, self.seconds, self.terms = state["rows"], state["seconds"], state["terms"]


def write_csv(path: Path, rows: list[dict[str, float]]) -> None:
    """Write rows with different keys under one header, whole or not at all."""
    columns = list(dict.fromkeys(k for row in rows for k in row))
    with write_whole(path) as partial, open(partial, "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
