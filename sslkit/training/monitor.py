"""Measure a run: its loss, and after each epoch its learning and collapse; write metrics.csv and tell the trackers."""

import math
import time
import warnings
from collections import deque
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.composition.method import Method
from sslkit.data.kept import KeptImages
from sslkit.errors import RunFailed, UserError
from sslkit.files.writing import write_csv
from sslkit.numerics import diagnostics
from sslkit.numerics.accuracy import knn_accuracy, probe_accuracy, scale_of
from sslkit.runtime import loggers
from sslkit.runtime.device import Late
from sslkit.runtime.loop import Hook, Loop
from sslkit.runtime.waiting import together
from sslkit.terminal import say
from sslkit.terminal.epoch_lines import Epoch, epoch_lines
from sslkit.training.data import Data, Loading, too_few

MOST_STEPS, ROWS = 20, 200  # steps between two rows, and rows of the loss in a short run
WINDOW = 1024  # embeddings for rank and spread, which both depend on the number


class History(Hook):
    """Collects the loss terms every `log_every` steps and what hooks add to `noted` in an epoch.

    log_every: "auto" takes 20 steps, and fewer in a short run, so that it has about 200 rows.
    metrics.csv is rewritten at every epoch and its rows are saved in the checkpoint: a resumed run has one curve.
    """

    def __init__(self, folder: Path, loading: Loading, *, log_every: int | str) -> None:
        self.folder, self.loading, self.log_every = folder, loading, log_every
        self.rows: list[dict[str, float]] = []
        self.pending: list[dict[str, Tensor]] = []
        self.unread: tuple[dict[str, int], list[str], Late, float] | None = None
        self.noted: dict[str, float] = {}
        self.terms: list[str] = []
        self.seconds = 0.0
        self.made = time.perf_counter()
        self.started = (0.0, 0.0, 0)

    def begin(self, loop: Loop) -> None:
        if self.log_every == "auto":
            self.log_every = max(loop.accumulate, min(MOST_STEPS, loop.batches * loop.epochs // ROWS))

    def epoch_begin(self, loop: Loop) -> None:
        self.started = (time.perf_counter(), self.loading.loader.waited, self.loading.loader.images)
        self.noted = {}

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        self._add_unread(loop)  # the step of this row has been checked by now
        watched = {k: v.detach() for k, v in loop.module.method.watched().items()}
        self.pending.append({**outputs["terms"], **watched})
        self.terms = [k for k in outputs["terms"] if k != "loss"]
        done = loop.batch + 1
        # The last row of an epoch includes the remaining steps: a mean of two steps would be a spike in the curve.
        if done % self.log_every == 0 and loop.batches - done >= self.log_every:
            self._flush(loop)

    def epoch_end(self, loop: Loop) -> None:
        self._add_unread(loop)
        self._flush(loop)
        self._add_unread(loop)
        start, waited, images = self.started
        seconds = time.perf_counter() - start
        self.seconds += seconds
        rate = (self.loading.loader.images - images) * loop.world_size / seconds
        self.noted |= {"images_per_second": rate, "waiting": (self.loading.loader.waited - waited) / seconds}

    def close_epoch(self, loop: Loop) -> None:
        """Add the epoch's row, write the file and log its lines. Call after all hooks have noted their values."""
        self._add({"epoch": loop.epoch + 1, "step": loop.step, **self.noted}, loop)
        if loop.is_main:
            self.write()
            latest = self._latest(loop.epoch + 1)
            terms = {name: latest[name] for name in self.terms if name in latest}
            unit, k = self.loading.data.unit, self.loading.config.eval.k
            epoch = Epoch(loop.epoch + 1, loop.epochs, self.noted, latest["loss"], terms, k, unit)
            say.lines(epoch_lines(epoch, loop.module.method.weights()))

    def write(self) -> None:
        """Write metrics.csv whole: rows with different keys under one header."""
        columns = list(dict.fromkeys(k for row in self.rows for k in row))
        lines = ([row.get(name, "") for name in columns] for row in self.rows)
        write_csv(self.folder / "metrics.csv", [columns, *lines])

    def _latest(self, epoch: int) -> dict[str, float]:
        """Means of the loss terms over the rows of the last 20 steps of an epoch, or over its last row."""
        rows = [row for row in self.rows if row["epoch"] == epoch and "loss" in row]
        rows = [row for row in rows if row["step"] > rows[-1]["step"] - MOST_STEPS]
        return {key: fmean(row[key] for row in rows) for key in rows[-1] if key in (*self.terms, "loss")}

    def _flush(self, loop: Loop) -> None:
        """Begin a row of the means over the steps since the last one; it is added when the next step is done."""
        if not self.pending:
            return
        names = [name for step in self.pending for name in step]  # not every step has all
        values = Late(torch.stack([value.float() for step in self.pending for value in step.values()]))
        self.pending = []
        place = {"epoch": loop.epoch + 1, "step": loop.step}
        self.unread = place, names, values, loop.optimizer.param_groups[0]["lr"]

    def _add_unread(self, loop: Loop) -> None:
        """Add the row that was begun, if there is one. What could not be measured in a step, NaN, is left out."""
        if self.unread is None:
            return
        (place, names, values, lr), self.unread = self.unread, None
        found: dict[str, list[Tensor]] = {}
        for name, value in zip(names, values.read(), strict=True):
            found.setdefault(name, []).extend([] if value.isnan() else [value])
        means = {name: torch.stack(given).mean().item() for name, given in found.items() if given}
        self._add({**place, **means, "lr": lr}, loop)

    def _add(self, row: dict[str, float], loop: Loop) -> None:
        self.rows.append(row)
        if loop.is_main:
            loggers.log(loop.loggers, {k: v for k, v in row.items() if k != "step"}, int(row["step"]))

    def state(self) -> dict[str, Any]:
        return {"rows": self.rows, "seconds": self.seconds, "terms": self.terms}

    def restore(self, state: dict[str, Any]) -> None:
        self.rows, self.seconds, self.terms = state["rows"], state["seconds"], state["terms"]


class Monitor(Hook):
    """Evaluates every `every` epochs, writes into the history, warns when the embedding collapses.

    data: bank and query are used if it has labels; only rank 0 reads them.
    """

    def __init__(self, data: Data, history: History, *, every: int, k: int) -> None:
        self.bank, self.query = data.bank, data.query
        self.history = history
        self.every, self.k = every, k
        self.z: deque[Tensor] = deque()
        self.probe: Probe | None = None
        self.restored: dict[str, Any] | None = None

    def begin(self, loop: Loop) -> None:
        if self.bank is None:
            return
        with torch.random.fork_rng(devices=[]):
            self.probe = Probe(loop.module.method.backbone.width, len(self.bank.images.classes)).to(loop.device)
        if self.restored:
            self.probe.load_state_dict(self.restored["probe"])
            self.probe.optimizer.load_state_dict(self.restored["optimizer"])

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        self.z.append(outputs["z"])
        while sum(map(len, self.z)) - len(self.z[0]) >= WINDOW:
            self.z.popleft()

    def epoch_end(self, loop: Loop) -> None:
        z = torch.cat(list(self.z))[-WINDOW:].cpu()
        self.z.clear()  # the window starts empty in each epoch, also after a resume
        last = loop.epoch + 1 == loop.epochs
        if not last and (loop.epoch + 1) % self.every:
            return
        with together("the evaluation of an epoch"):
            if loop.is_main:
                # sqrt(D) times the mean standard deviation of l2-normalised z: about 1 without a collapse
                rank = diagnostics.rankme(z)
                std = (diagnostics.unit_rows(z).std(0).mean() * math.sqrt(z.shape[1])).item()
                self.history.noted |= {"rankme": rank, "std": std}
                if reason := collapse(rank, std, *z.shape):
                    warnings.warn(f"epoch {loop.epoch + 1}: the embedding is collapsing: {reason}", stacklevel=2)
                if self.probe is not None:
                    self.history.noted |= self._judge(loop)

    def _judge(self, loop: Loop) -> dict[str, float]:
        device, method = loop.device, loop.module.method
        x, y = features(method, self.bank)
        query, query_y = features(method, self.query)
        mean, std = scale_of(x)
        self.probe.learn(((x - mean) / std).to(device), y.to(device))
        probe = self.probe.accuracy(((query - mean) / std).to(device), query_y.to(device))
        return {"knn": knn_accuracy(x, y, query, query_y, k=self.k), "probe": probe}

    def state(self) -> dict[str, Any]:
        if self.probe is None:
            return {}
        return {"probe": self.probe.state_dict(), "optimizer": self.probe.optimizer.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        self.restored = state


class Probe(nn.Module):
    """A linear classifier trained during the run, on detached features of clean images, with its own optimiser.

    It keeps its weights between evaluations, so a few steps are enough to follow the backbone.
    """

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, classes)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.optimizer = torch.optim.Adam(self.linear.parameters(), lr=0.03)

    def learn(self, x: Tensor, y: Tensor, steps: int = 100) -> None:
        """Train for `steps` full-batch steps. x: (N, F) standardised features, y: (N,) classes."""
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            for _ in range(steps):
                self.optimizer.zero_grad()
                F.cross_entropy(self.linear(x), y).backward()
                self.optimizer.step()

    @torch.no_grad()
    def accuracy(self, x: Tensor, y: Tensor) -> float:
        return (self.linear(x).argmax(1) == y).float().mean().item()


def collapse(rank: float, std: float, n: int, dim: int) -> str | None:
    """The reason why the embedding counts as collapsed, or None."""
    if std < 0.1:
        return (
            f"all images land on nearly one point (spread {std:.3f}, healthy is near 1). "
            "Lower optimizer.lr, raise the batch size, or check the views"
        )
    if rank < max(2.0, 0.02 * min(n, dim)):
        return (
            f"the {dim} dimensions hold only {rank:.1f} directions (RankMe over {n} images). "
            "Lower optimizer.lr, or add a term that spreads them: +koleo"
        )
    return None


def judge(method: Method, data: Data, k: int) -> dict[str, float]:
    """kNN, the quick probe and crowding of the current backbone; empty without labels, or if too few can be read."""
    if data.bank is None:
        return {}
    bank, query = (features(method, part) for part in (data.bank, data.query))
    if too_few(bank[1].numpy(), query[1].numpy()):
        return {}
    crowded = diagnostics.crowding(*query)
    return {
        "knn": knn_accuracy(*bank, *query, k=k),
        "probe": probe_accuracy(*bank, *query),
        "inter": crowded.inter,
        "intra": crowded.intra,
        "n": len(query[0]),
    }


@torch.no_grad()
def features(method: Method, clean: KeptImages, *, batch_size: int = 256) -> tuple[Tensor, Tensor]:
    """Backbone features of clean images, in eval mode: (x: (N, F) float32 on the CPU, y: (N,) int64, -1 unlabelled).

    clean: also videos, whose features are the mean over their clips.
    batch_size: in images; for videos 4 * batch_size frames.
    Unreadable images are left out, so N may be smaller than the number of rows.
    """
    images = clean.images
    if method.backbone.frames is not None:
        batch_size = max(1, 4 * batch_size // (images.frames * images.clips))
    device = next(method.parameters()).device
    training = method.training
    method.eval()
    x, y = [], []
    for asked, batch in clean.batches(batch_size):
        # An unreadable image was replaced by its neighbour, which may be of the other split: leave it out.
        own = np.flatnonzero(batch["index"].numpy() == asked)
        if len(own):
            pixels = batch["images"][own].to(device, non_blocking=True).float() / 255
            x.append(_embedded(method, pixels).float().cpu())
            y.append(batch["label"][own])
    method.train(training)
    if not x:
        raise UserError(f"none of {len(clean.rows)} images of {images.name} can be read")
    x = torch.cat(x)
    if not x.isfinite().all():
        raise RunFailed("the backbone's features are not finite")
    return x, torch.cat(y)


def _embedded(method: Method, pixels: Tensor) -> Tensor:
    """Images (N, C, H, W) or clips (N, R, C, T, H, W), in [0, 1] -> (N, F)."""
    if pixels.dim() == 4:
        return method.backbone(method.normalized(pixels))
    return method.backbone(method.normalized(pixels.flatten(0, 1))).unflatten(0, pixels.shape[:2]).mean(1)
