"""Measure a run: its loss, and after each epoch its learning and collapse; write metrics.csv and tell the trackers."""

import copy
import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sslkit.files.writing import write_csv
from sslkit.numerics import diagnostics
from sslkit.numerics.accuracy import knn_hits, scale_of
from sslkit.numerics.paired import Paired
from sslkit.numerics.wilson import units_of
from sslkit.runtime.device import Late
from sslkit.runtime.loop import Hook, Loop
from sslkit.runtime.waiting import together
from sslkit.terminal import say
from sslkit.terminal.epoch_lines import Epoch, epoch_lines
from sslkit.training.data import Data
from sslkit.training.quick_evaluation import (
    Hits,
    Probe,
    collapse,
    count_units,
    features,
    gains,
    harm,
    hits,
    of_largest_class,
    shares,
    usefulness,
    zeros,
)
from sslkit.training.view_retrieval import measure_views

MOST_STEPS, ROWS = 20, 200  # steps between two rows, and rows of the loss in a short run
LOWER = "training may be ruining the backbone: lower optimizer.lr, or set optimizer.clip=1"
# embeddings for rank and spread, which both depend on the number: that of a large batch, so that runs can be compared
WINDOW = 1024


class History(Hook):
    """Collects the loss terms every `log_every` steps and what hooks add to `noted` in an epoch.

    unit, k: images or videos, and neighbours of the kNN, for the lines. log_every: "auto" takes 20 steps, and fewer in
    a short run, so that it has about 200 rows.
    metrics.csv is rewritten at every epoch and its rows are saved in the checkpoint: a resumed run has one curve.
    """

    def __init__(self, folder: Path, *, unit: str, k: int, log_every: int | str) -> None:
        self.folder, self.unit, self.k, self.log_every = folder, unit, k, log_every
        self.rows: list[dict[str, float]] = []
        self.pending: list[dict[str, Tensor]] = []
        self.unread: tuple[dict[str, int], list[str], Late, float] | None = None
        self.noted: dict[str, float] = {}
        self.below: list[str] = []  # lines that hooks add below those of the epoch
        self.terms: list[str] = []
        self.seconds, self.images = 0.0, 0
        self.made = time.perf_counter()
        self.before = np.zeros(3)  # seconds, seconds of waiting and images of this epoch, before a stop inside it
        self.started: np.ndarray | None = None  # of the same three, while an epoch is trained
        self.restored: dict[str, Any] = {}

    def begin(self, loop: Loop) -> None:
        if self.log_every == "auto":
            self.log_every = max(loop.accumulate, min(MOST_STEPS, loop.batches * loop.epochs // ROWS))
        loop.module.method.terms_of |= self.restored.get("terms_of", {})
        self.loop, self.method = loop, loop.module.method

    def epoch_begin(self, loop: Loop) -> None:
        self.started = self._counts()
        self.noted, self.below = {}, []

    def add_start(self, loop: Loop, columns: dict[str, float]) -> None:
        """Add a row of the first weights."""
        self._add({"epoch": 0, "step": 0, **columns}, loop)

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        self._add_unread(loop)  # the step of this row has been checked by now
        self.images += len(batch["index"])
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
        seconds, waited, images = self._of_epoch().tolist()
        self.seconds += seconds
        self.before, self.started = np.zeros(3), None
        self.noted |= {"images_per_second": images * loop.world_size / seconds, "waiting": waited / seconds}

    def _counts(self) -> np.ndarray:
        """Seconds, seconds of waiting for data and images of this process, from some start."""
        return np.array([time.perf_counter(), self.loop.waited, self.images])

    def _of_epoch(self) -> np.ndarray:
        """Seconds, seconds of waiting and images of this epoch so far."""
        return self.before if self.started is None else self.before + self._counts() - self.started

    def close_epoch(self, loop: Loop) -> None:
        """Add the epoch's row, write the file and log its lines. Call after all hooks have noted their values."""
        self._add({"epoch": loop.epoch + 1, "step": loop.step, **self.noted}, loop, closes_epoch=True)
        if loop.is_main:
            self.write()
            latest = self._latest(loop.epoch + 1)
            terms = {name: latest[name] for name in self.terms if name in latest}
            epoch = Epoch(loop.epoch + 1, loop.epochs, self.noted, latest["loss"], terms, self.k, self.unit)
            say.lines("\n".join([epoch_lines(epoch, loop.module.method.weights()), *self.below]))

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
        position = {"epoch": loop.epoch + 1, "step": loop.step}
        self.unread = position, names, values, loop.optimizer.param_groups[0]["lr"]

    def _add_unread(self, loop: Loop) -> None:
        """Add the row that was begun, if there is one. What could not be measured in a step, NaN, is left out."""
        if self.unread is None:
            return
        (position, names, values, lr), self.unread = self.unread, None
        numbers: dict[str, list[Tensor]] = {}
        for name, value in zip(names, values.read(), strict=True):
            numbers.setdefault(name, []).extend([] if value.isnan() else [value])
        means = {name: torch.stack(seen).mean().item() for name, seen in numbers.items() if seen}
        self._add({**position, **means, "lr": lr}, loop)

    def _add(self, row: dict[str, float], loop: Loop, *, closes_epoch: bool = False) -> None:
        self.rows.append(row)
        if loop.trackers is not None:
            values = {name: value for name, value in row.items() if name != "step"}
            loop.trackers.log(values, int(row["step"]), closes_epoch=closes_epoch)

    def state(self) -> dict[str, Any]:
        pending = [{name: value.cpu() for name, value in step.items()} for step in self.pending]
        unread = None if self.unread is None else (*self.unread[:2], self.unread[2].read().clone(), self.unread[3])
        inside = {"pending": pending, "unread": unread, "epoch": self._of_epoch().tolist()}
        inside |= {"terms_of": {name: list(terms) for name, terms in self.method.terms_of.items()}}
        return {"rows": list(self.rows), "seconds": self.seconds, "terms": self.terms, **inside}

    def restore(self, state: dict[str, Any]) -> None:
        self.rows, self.seconds, self.terms = state["rows"], state["seconds"], state["terms"]
        self.pending, self.before = state["pending"], np.array(state["epoch"])
        if state["unread"] is not None:
            position, names, values, lr = state["unread"]
            self.unread = position, names, Late(values), lr
        self.restored = state


class Monitor(Hook):
    """Evaluates every `every` epochs, writes into the history, warns of a collapse and of a backbone that gets worse.

    data: bank and query are used if it has labels; only rank 0 reads them. before: which images the first weights get
        right. compares: whether to find other views of images without labels, and to tell gains on the first weights.
    scores: what the weights of an epoch are compared by, see `usefulness`; None of an epoch that is not evaluated.
    """

    def __init__(
        self, data: Data, history: History, *, every: int, k: int, before: Callable[[], Hits], compares: bool
    ) -> None:
        self.data, self.bank, self.query = data, data.bank, data.query
        self.history = history
        self.every, self.k, self.before, self.compares = every, k, before, compares
        self.scores: np.ndarray | None = None
        self.told: set[str] = set()
        self.z: deque[Tensor] = deque()
        self.to_come = 0  # embeddings in the rest of the epoch
        self.probe: Probe | None = None
        self.restored: dict[str, Any] | None = None

    def begin(self, loop: Loop) -> None:
        if self.restored and "z" in self.restored:
            self.z.append(self.restored["z"].to(loop.device))
        if self.bank is None:
            return
        with torch.random.fork_rng(devices=[]):
            self.probe = Probe(loop.module.method.backbone.width, len(self.bank.images.classes)).to(loop.device)
        if self.restored and "probe" in self.restored:
            self.probe.load_state_dict(self.restored["probe"])
            self.probe.optimizer.load_state_dict(self.restored["optimizer"])

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        self.z.append(outputs["z"])
        self.to_come = (loop.batches - loop.batch - 1) * len(outputs["z"])
        while sum(map(len, self.z)) - len(self.z[0]) >= WINDOW:
            self.z.popleft()

    def epoch_end(self, loop: Loop) -> None:
        z = torch.cat(list(self.z))[-WINDOW:].cpu()
        self.z.clear()  # the window starts empty in each epoch, also after a resume
        self.scores = None
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
                    say.warn(f"epoch {loop.epoch + 1}: the embedding is collapsing: {reason}", stacklevel=2)
                self.history.noted |= self._find_views(loop) if self.probe is None else self._judge(loop)

    def _find_views(self, loop: Loop) -> dict[str, float]:
        _, right = measure_views(loop.module.method, self.data) if self.compares else ({}, {})
        if not right:
            return {}
        self.scores = usefulness(right)
        return {**shares(right), **self._tell_gain(gains(right, self.before(), None).get("found"))}

    def _tell_gain(self, gain: Paired | None) -> dict[str, float]:
        told = self.compares and gain is not None
        return {"gain": gain.mean, "gain_low": gain.low, "gain_high": gain.high} if told else {}

    def _judge(self, loop: Loop) -> dict[str, float]:
        device, method = loop.device, loop.module.method
        x, y = features(method, self.bank)
        query, query_y = features(method, self.query)
        mean, std = scale_of(x)
        self.probe.learn(((x - mean) / std).to(device), y.to(device))
        probe = self.probe.accuracy(((query - mean) / std).to(device), query_y.to(device))
        right = {"knn": knn_hits(x, y, query, query_y, k=self.k)}
        gain, knn = gains(right, self.before(), self.query).get("knn"), shares(right)["knn"]
        units = units_of({"n": len(query), **count_units(self.query)})
        self._warn(loop.epoch + 1, knn, units, gain, zeros(x, query))
        if self.data.choice is not None:
            self.scores = usefulness(hits((x, y), features(method, self.data.choice), self.k))
        return {"knn": knn, "probe": probe, **self._tell_gain(gain)}

    def _warn(self, epoch: int, knn: float, units: int, gain: Paired | None, dead: str | None) -> None:
        """Warn once of an accuracy below the start's or the largest class's, and once of features that are zero."""
        worse = harm(knn, units, gain, of_largest_class(self.query))
        lines = {"worse": worse and f"{self.k}-NN is {100 * knn:.1f} %, below {' and '.join(worse)}", "dead": dead}
        for kind, line in lines.items():
            if line and kind not in self.told:
                self.told.add(kind)
                say.warning(f"warning: epoch {epoch}: {line}; {LOWER}")

    def state(self) -> dict[str, Any]:
        state = {}
        if self.z and self.to_come < WINDOW:  # otherwise the window has none of these at the end of the epoch
            state["z"] = torch.cat(list(self.z))[-WINDOW:].cpu()
        if self.probe is not None:  # which learns while an epoch ends
            state |= copy.deepcopy({"probe": self.probe.state_dict(), "optimizer": self.probe.optimizer.state_dict()})
        return state

    def restore(self, state: dict[str, Any]) -> None:
        self.restored = state
