"""Many linear heads trained by SGD in one pass: the grid of learning rates and weight decays on cached features.

The H heads of K classes are one (H K, D) matrix: a batch is read once and costs two products for any H. This is the
probe of DINOv2 (Oquab et al. 2023, arXiv 2304.07193): 13 learning rates, 12,500 iterations, cosine, momentum 0.9.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from evaluation.learners.descent import Saved, descend
from evaluation.results.measures import map11
from sslkit.errors import UserError
from sslkit.layers.heads import UnitLength
from sslkit.numerics.schedules import cosine
from sslkit.numerics.ties import SHARE
from sslkit.options.members import nearest
from sslkit.runtime.context import Runtime

SCALES = {"standardize": "standardized", "l2": "l2-normalised", "none": "as they are"}
# as DINOv2's linear evaluation (Oquab et al. 2023, arXiv 2304.07193)
LEARNING_RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 1e-1)
MOMENTUM = 0.9  # of SGD, as there
BLOCK = 4096  # rows read at a time: 32 MB of 2,048 features
CONSTANT = 1e-6  # a feature is constant if its deviation is below this share of its mean: the rounding of float32 sums


@dataclass(frozen=True)
class Scaling:
    """Scaling of features before a classifier: by the statistics of its training rows, or to length 1.

    mean, deviation: (D,) float64, None unless `kind` is "standardize".
    """

    kind: str
    mean: np.ndarray | None = None
    deviation: np.ndarray | None = None

    @classmethod
    def measure(cls, x: np.ndarray, rows: np.ndarray, kind: str) -> "Scaling":
        """Measure the scaling on some rows of x: (N, D), in blocks. A constant feature keeps its scale."""
        if kind not in SCALES:
            raise UserError(f"there is no scale {kind!r}: {nearest(kind, SCALES)}")
        if kind != "standardize":
            return cls(kind)
        mean = sum(block.sum(0) for block in _blocks(x, rows)) / len(rows)
        square = sum(np.square(block - mean).sum(0) for block in _blocks(x, rows)) / len(rows)
        deviation = np.sqrt(square)
        return cls(kind, mean, np.where(deviation > CONSTANT * np.abs(mean), deviation, 1.0))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return scaled features (n, D) float64."""
        x = np.asarray(x, dtype=np.float64)
        if self.kind == "standardize":
            return (x - self.mean) / self.deviation
        if self.kind == "l2":
            return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return x

    def fold(self, weight: np.ndarray, bias: np.ndarray) -> nn.Sequential:
        """Return layers of plain features (N, D) -> scores (N, K). weight (K, D), bias (K,): of scaled features."""
        if self.kind == "standardize":
            weight = weight / self.deviation
            bias = bias - weight @ self.mean
        layer = nn.utils.skip_init(nn.Linear, weight.shape[1], len(weight))
        layer.weight, layer.bias = (
            nn.Parameter(torch.from_numpy(values).float(), requires_grad=False) for values in (weight, bias)
        )
        return nn.Sequential(*([UnitLength()] if self.kind == "l2" else []), layer).eval()


@dataclass(frozen=True)
class Grid:
    """Every learning rate with every weight decay.

    learning_rates: for batches of 256, scaled by the rows of a step / 256. weight_decays: added to the gradient of the
    weights, not of the intercepts. iterations: steps of SGD. batch_size: most rows of a step.
    """

    learning_rates: tuple[float, ...] = LEARNING_RATES
    weight_decays: tuple[float, ...] = (0.0,)
    iterations: int = 12500
    batch_size: int = 1024

    def __post_init__(self) -> None:
        if not self.learning_rates or not all(np.isfinite(lr) and lr > 0 for lr in self.learning_rates):
            raise UserError(f"learning_rates={self.learning_rates} must be numbers above 0, at least one")
        if not self.weight_decays or not all(np.isfinite(wd) and wd >= 0 for wd in self.weight_decays):
            raise UserError(f"weight_decays={self.weight_decays} must be numbers from 0, at least one")
        for name in ("iterations", "batch_size"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)} must be at least 1")

    def rows_a_step(self, n: int) -> int:
        """Return the rows of a step of n in all."""
        return min(self.batch_size, n)

    def heads(self) -> list[tuple[float, float]]:
        """Return (learning rate, weight decay) of each head."""
        return list(itertools.product(self.learning_rates, self.weight_decays))


@dataclass(frozen=True)
class Heads:
    """H linear classifiers of scaled features. weight: (H, K, D), bias: (H, K), float32.

    columns: (D,) of the features that they read; None: all.
    """

    weight: Tensor
    bias: Tensor
    scaling: Scaling
    columns: np.ndarray | None = None

    def scores(self, x: np.ndarray, rows: np.ndarray) -> Iterator[Tensor]:
        """Yield scores (H, n, K) of blocks of rows of x, in order."""
        for start in range(0, len(rows), BLOCK):
            yield torch.stack([*self._blocks(x, rows[start : start + BLOCK])])

    def _blocks(self, x: np.ndarray, rows: np.ndarray) -> Iterator[Tensor]:
        block = _columns_of(torch.from_numpy(self.scaling(x[rows])).to(self.weight), self.columns)
        return (torch.addmm(bias, block, weight.T) for weight, bias in zip(self.weight, self.bias, strict=True))

    def scores_of(self, head: int, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the scores (n, K) of one head."""
        alone = replace(self, weight=self.weight[head : head + 1], bias=self.bias[head : head + 1])
        return np.concatenate([scores[0].cpu().numpy() for scores in alone.scores(x, rows)])


def train_heads(
    x: np.ndarray,
    rows: np.ndarray,
    y: np.ndarray,
    classes: int,
    grid: Grid,
    scaling: Scaling,
    runtime: Runtime,
    inputs: Sequence[np.ndarray | None] = (None,),
    saved: Saved | None = None,
) -> list[Heads]:
    """Train every head of a grid on the same batches, from zero, with PyTorch's SGD with momentum 0.9.

    x: (N, D), memory-mapped or not. rows: (n,) to train on. y: (n,) int64 labels of these rows, or (n, K) of
    1, -1, 0 (does not count). classes: K. The seed is of the order of the rows.
    inputs: columns of x, see `Heads`; each has all heads of the grid. saved: see `descend`.
    Returns the heads of each input.
    """
    device = runtime.device
    settings = torch.tensor(grid.heads(), device=device)
    rates, decays = settings[:, 0] * grid.rows_a_step(len(rows)) / 256, settings[:, 1]
    widths = [x.shape[1] if columns is None else len(columns) for columns in inputs]
    parameters = [
        tensor
        for width in widths
        for tensor in (
            torch.zeros(len(settings), classes, width, device=device),
            torch.zeros(len(settings), classes, device=device),
        )
    ]
    speeds = [torch.zeros_like(value) for value in parameters]
    heads = [
        Heads(weight, bias, scaling, columns)
        for weight, bias, columns in zip(parameters[::2], parameters[1::2], inputs, strict=True)
    ]
    target = torch.from_numpy(y).to(device)

    def step(number: int, at: np.ndarray) -> None:
        batch = torch.from_numpy(scaling(x[rows[at]])).float().to(device)
        labels, factor = target[torch.from_numpy(at).to(device)], rates * cosine(number, grid.iterations)
        for each, (speed, speed_of_bias) in zip(heads, zip(speeds[::2], speeds[1::2], strict=True), strict=True):
            slope, slope_of_bias = gradients(each.weight, each.bias, _columns_of(batch, each.columns), labels)
            slope.add_(decays[:, None, None] * each.weight)
            each.weight.sub_(factor[:, None, None] * speed.mul_(MOMENTUM).add_(slope))
            each.bias.sub_(factor[:, None] * speed_of_bias.mul_(MOMENTUM).add_(slope_of_bias))

    how = {"n": len(rows), "batch_size": grid.rows_a_step(len(rows)), "iterations": grid.iterations}
    descend(step, [*parameters, *speeds], label="heads", runtime=runtime, saved=saved, **how)
    return heads


def _columns_of(batch: Tensor, columns: np.ndarray | None) -> Tensor:
    return batch if columns is None else batch[:, torch.from_numpy(columns).to(batch.device)]


def gradients(weight: Tensor, bias: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of each head's mean loss over a batch: cross-entropy, or binary, summed over classes.

    weight: (H, K, D), bias: (H, K), x: (B, D), y: (B,) int64 or (B, K) of 1, -1, 0.
    """
    h, k, d = weight.shape
    logits = torch.addmm(bias.flatten(), x, weight.view(h * k, d).T).view(len(x), h, k)
    if y.dim() == 1:
        residual = logits.softmax(2)
        residual.scatter_add_(2, y[:, None, None].expand(-1, h, 1), -torch.ones_like(logits[:, :, :1]))
    else:
        sign = y[:, None].to(logits.dtype)
        residual = -sign * torch.sigmoid(-sign * logits)
    residual = residual.view(len(x), h * k) / len(x)
    return (residual.T @ x).view_as(weight), residual.sum(0).view_as(bias)


def judge_heads(heads: Heads, x: np.ndarray, rows: np.ndarray, y: np.ndarray, metric: str) -> np.ndarray:
    """Return the metric (H,) of each head on some rows; NaN for a diverged head. y: the labels of these rows."""
    sound = heads.weight.isfinite().all(2).all(1) & heads.bias.isfinite().all(1)
    return judge_scores(heads.scores(x, rows), sound, y, metric)


def judge_scores(scores: Iterator[Tensor], sound: Tensor, y: np.ndarray, metric: str) -> np.ndarray:
    """Return the metric (H,) of scores (H, n, K) of blocks of rows; NaN where one of `sound` (H,) is False.

    y: the labels of all rows.
    """
    if metric == "map11":
        together = np.nan_to_num(torch.cat(list(scores), 1).cpu().numpy())
        values = np.array([map11(score, y) for score in together])
    else:
        guesses = torch.cat([_top_class(block) for block in scores], 1).cpu().numpy()
        values = np.array([accuracy(guess, y, metric) for guess in guesses])
    return np.where(sound.cpu().numpy(), values, np.nan)


def _top_class(scores: Tensor) -> Tensor:
    """Like `sslkit.numerics.ties.top_class`, (H, n) of scores (H, n, K) on their device."""
    bound = SHARE[torch.finfo(scores.dtype).bits] * scores.abs().amax(2, keepdim=True)
    return (scores >= scores.amax(2, keepdim=True) - bound).to(torch.int8).argmax(2)


def accuracy(guess: np.ndarray, y: np.ndarray, metric: str) -> float:
    """Return the share of correct labels: "top1" over all, "mean_per_class" by class. guess, y: (N,) int64."""
    return mean_of(guess == y, y, metric)


def mean_of(values: np.ndarray, y: np.ndarray, metric: str) -> float:
    """Return the mean of values (N,), for "mean_per_class" that of the class means. y: (N,) int64."""
    if metric != "mean_per_class":
        return float(values.mean())
    counts = np.bincount(y)
    return float((np.bincount(y, weights=values)[counts > 0] / counts[counts > 0]).mean())


def _blocks(x: np.ndarray, rows: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), BLOCK):
        yield np.asarray(x[rows[start : start + BLOCK]], dtype=np.float64)
