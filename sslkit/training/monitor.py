"""Detect learning and collapse: kNN, an online linear probe, rank and spread, after each epoch."""

import math
import warnings
from collections import deque
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.numerics import diagnostics
from sslkit.runtime.loop import Hook, Loop
from sslkit.runtime.waiting import together
from sslkit.training.data import Data
from sslkit.training.features import features, knn_accuracy
from sslkit.training.history import History

WINDOW = 1024  # embeddings for rank and spread, which both depend on the number


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
        with together("the judgement of an epoch"):
            if loop.is_main:
                self.history.note(**self._spread(z, loop.epoch))
                if self.probe is not None:
                    self.history.note(**self._judge(loop))

    def _spread(self, z: Tensor, epoch: int) -> dict[str, float]:
        rank, std = spread(z)
        reason = collapse(rank, std, *z.shape)
        if reason:
            warnings.warn(f"epoch {epoch + 1}: the embedding is collapsing: {reason}", stacklevel=2)
        return {"rankme": rank, "std": std}

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


def scale_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (F,) of features (N, F); inf for a dead unit, which varies only by rounding.

    Rounding: float32 deviations from a mean have an error of about 2^-24 of it; 1e-6 is sixteen times that.
    """
    std, mean = torch.std_mean(x, 0)
    return mean, std.where(std > 1e-6 * mean.abs(), torch.inf)


def spread(z: Tensor) -> tuple[float, float]:
    """RankMe, and sqrt(D) times the mean over dimensions of the standard deviation of l2-normalised z: about 1."""
    unit = diagnostics.unit_rows(z)
    return diagnostics.rankme(z), (unit.std(0).mean() * math.sqrt(z.shape[1])).item()


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
