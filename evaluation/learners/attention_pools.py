"""Attention pools of frozen tokens, each with a linear classifier: many settings of the optimiser in one pass.

A pool looks at the T tokens of an image with M queries. That of CAPI (Darcet et al. 2025, arXiv 2502.08769)
has one learned query, cut into heads, and projections to keys and values. Efficient probing (Psomas et al. 2026, arXiv
2506.10178) has many queries that look at the tokens themselves, without keys, and one projection to values, of which
each query has its share. In both the weights of a head depend on the tokens by one vector, so that tokens are pooled
before they are projected: the same numbers, at T D M products an image instead of T D D.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evaluation.learners.descent import Saved, descend
from evaluation.learners.linear_heads import Grid
from sslkit.numerics.schedules import cosine
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import seed_of

QUERIES = 32  # of efficient probing, as in its paper's tables
HEAD = 64  # width of a head of CAPI's pool, as there
POOLS = ("efficient", "attention")
SPREAD = 0.02  # of the weights at the start, as CAPI's and the queries of efficient probing
BETAS, EPSILON = (0.9, 0.95), 1e-8  # of AdamW, as CAPI's
WARM_UP = 0.1  # of the steps, as CAPI's
MOMENTUM, LEAST = 0.1, 1e-6  # of running statistics, and added to a variance, as efficient probing's
BYTES, IMAGES = 2**27, 256  # of tokens that are read at a time, as float32: the most
UNDECAYED = ("bias", "value_bias")  # and so the intercepts of the classifier


@dataclass(frozen=True)
class Tokens:
    """Tokens of images as rows that may lie on the disk. x: (N, T D), T tokens each. scale: what they are divided by.

    One number for all, so that learning rates suit any network and the pools see the tokens as they are.
    """

    x: np.ndarray
    count: int
    scale: float = 1.0

    @property
    def width(self) -> int:
        return self.x.shape[1] // self.count

    def read(self, rows: np.ndarray, like: Tensor) -> Tensor:
        """Return tokens (n, T, D) of some rows, of the type and on the device of `like`."""
        tokens = torch.from_numpy(self.x[rows]).to(like.device).to(like.dtype)
        return tokens.view(len(rows), self.count, self.width) / self.scale

    def blocks(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Yield some of the rows at a time, in order."""
        size = min(max(BYTES // (4 * self.x.shape[1]), 1), IMAGES)
        yield from (rows[start : start + size] for start in range(0, len(rows), size))

    def scale_by(self, rows: np.ndarray) -> "Tokens":
        """Return the same tokens, divided by the deviation of those of some rows."""
        count = mean = square = 0.0
        for block in self.blocks(rows):
            values = self.x[block].astype(np.float64)
            count, mean, square = count + values.size, mean + values.sum(), square + np.square(values).sum()
        deviation = float(np.sqrt(max(square / count - (mean / count) ** 2, 0.0)))
        return Tokens(self.x, self.count, deviation or 1.0)


@dataclass(frozen=True)
class Stack:
    """H pools of one kind with their classifiers. values: parameters by name, each (H, ...).

    M queries of P values each, D = M P: "value" (H, M, P, D), "weight" (H, K, D) and "bias" (H, K); of efficient
    probing "query" (H, M, D); of CAPI's "query" (H, M, P), "key" (H, M, P, D), "value_bias" (H, M, P).
    running: mean and variance (H, D) of the pooled values in training, by which efficient probing normalises them.
    """

    kind: str
    values: Mapping[str, Tensor]
    running: Mapping[str, Tensor]

    @classmethod
    def create(cls, kind: str, count: int, classes: int, width: int, seed: int, like: Tensor) -> "Stack":
        """Make `count` pools that start from the same numbers, of the type and on the device of `like`."""
        generator = torch.Generator().manual_seed(seed_of("attention pools", seed))
        queries = queries_of(kind, width)
        each = width // queries
        shapes = {"query": (queries, width if kind == "efficient" else each), "value": (queries, each, width)}
        if kind == "attention":
            shapes |= {"key": (queries, each, width), "value_bias": (queries, each)}
        shapes |= {"weight": (classes, width), "bias": (classes,)}
        values = {}
        for name, shape in shapes.items():
            start = torch.zeros(shape) if name in UNDECAYED else SPREAD * torch.randn(shape, generator=generator)
            if kind == "efficient" and name == "value":
                start = (2 * torch.rand(shape, generator=generator) - 1) / width**0.5
            values[name] = start.to(like).expand(count, *shape).clone()
        running = {"mean": torch.zeros(count, width).to(like), "variance": torch.ones(count, width).to(like)}
        return cls(kind, values, running if kind == "efficient" else {})

    def tensors(self) -> list[Tensor]:
        return [*self.values.values(), *self.running.values()]

    def take(self, number: int) -> "Stack":
        """Return one of the pools, alone."""
        both = self.values, self.running
        return Stack(self.kind, *({name: value[number : number + 1] for name, value in some.items()} for some in both))

    def size(self) -> int:
        """Return the number of parameters of a pool with its classifier."""
        return sum(value[0].numel() for value in self.values.values())

    def scores(self, tokens: Tensor, *, training: bool = False) -> Tensor:
        """Return scores (B, H, K) of tokens (B, T, D). training: normalise by the batch, and note its statistics."""
        features = self._pool(tokens)
        if self.running:
            features = self._normalize(features, training)
        return torch.einsum("bhd,hkd->bhk", features, self.values["weight"]) + self.values["bias"]

    def _pool(self, tokens: Tensor) -> Tensor:
        """Return (B, H, D): of each query the values of the tokens, by its attention."""
        values, width = self.values, tokens.shape[2]
        if self.kind == "efficient":
            look = values["query"] * width**-0.5
        else:
            look = torch.einsum("hmp,hmpd->hmd", values["query"], values["key"]) * values["query"].shape[2] ** -0.5
        h, m, _ = look.shape
        attention = (tokens @ look.flatten(0, 1).T).softmax(1)  # (B, T, H M)
        looked = (attention.transpose(1, 2) @ tokens).unflatten(1, (h, m))
        pooled = torch.einsum("bhmd,hmpd->bhmp", looked, values["value"])
        return (pooled + values.get("value_bias", 0)).flatten(2)

    def _normalize(self, features: Tensor, training: bool) -> Tensor:
        """Return features with mean 0 and variance 1, of the batch, or by the running statistics."""
        mean, variance = self.running["mean"], self.running["variance"]
        if training:
            now, spread = features.mean(0), features.var(0, unbiased=False)
            with torch.no_grad():
                mean.lerp_(now, MOMENTUM)
                variance.lerp_(spread * len(features) / max(len(features) - 1, 1), MOMENTUM)
            mean, variance = now, spread
        return (features - mean) * (variance + LEAST).rsqrt()


def queries_of(kind: str, width: int) -> int:
    """Return the number of queries or heads: a divisor of the width, as each has its share of the values."""
    most = QUERIES if kind == "efficient" else max(width // HEAD, 1)
    return max(count for count in range(1, min(most, width) + 1) if width % count == 0)


def train_pools(
    kind: str,
    tokens: Tokens,
    rows: np.ndarray,
    y: np.ndarray,
    classes: int,
    grid: Grid,
    runtime: Runtime,
    saved: Saved | None = None,
    dtype: torch.dtype = torch.float32,
) -> Stack:
    """Train a pool for every setting of a grid on the same batches, by AdamW with a warm-up and a cosine.

    rows: (n,) to train on. y: (n,) int64 labels of these rows, or (n, K) of 1, -1, 0 (does not count). classes: K.
    The seed is of the start, and of the order of the rows. saved: see `descend`.
    """
    like = torch.empty(0, dtype=dtype, device=runtime.device)
    settings = torch.tensor(grid.heads(), dtype=dtype, device=like.device)
    rates, decays = settings[:, 0] * grid.rows_a_step(len(rows)) / 256, settings[:, 1]
    stack = Stack.create(kind, len(settings), classes, tokens.width, runtime.seed, like)
    moments = [{name: torch.zeros_like(value) for name, value in stack.values.items()} for _ in BETAS]
    target = torch.from_numpy(y).to(like.device)

    def step(number: int, at: np.ndarray) -> None:
        labels, batch = target[torch.from_numpy(at).to(like.device)], tokens.read(rows[at], like)
        slopes = _slopes(stack, batch, labels)
        lr = rates * _rate(number, grid.iterations)
        for name, value in stack.values.items():
            shape = (-1, *[1] * (value.dim() - 1))
            if name not in UNDECAYED:
                value.mul_((1 - lr * decays).view(shape))
            first, second = (moment[name] for moment in moments)
            first.lerp_(slopes[name], 1 - BETAS[0])
            second.lerp_(slopes[name].square(), 1 - BETAS[1])
            deviation = (second / (1 - BETAS[1] ** (number + 1))).sqrt_().add_(EPSILON)
            value.sub_((lr / (1 - BETAS[0] ** (number + 1))).view(shape) * first / deviation)

    state = [*stack.tensors(), *itertools.chain(*(moment.values() for moment in moments))]
    how = {"n": len(rows), "batch_size": grid.rows_a_step(len(rows)), "iterations": grid.iterations}
    descend(step, state, label="attentive probes", runtime=runtime, saved=saved, **how)
    return stack


def _rate(step: int, steps: int) -> float:
    """Return the factor of the learning rates: it rises in a line, then falls as a cosine."""
    warm = WARM_UP * steps
    return (step + 1) / (warm + 1) if step < warm else cosine(step - warm, steps - warm)


def _slopes(stack: Stack, tokens: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Return the gradients of each pool's mean loss over a batch."""
    leaves = {name: value.detach().requires_grad_() for name, value in stack.values.items()}
    loss = losses(Stack(stack.kind, leaves, stack.running).scores(tokens, training=True), y).sum()
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def losses(scores: Tensor, y: Tensor) -> Tensor:
    """Return (H,) mean cross-entropy of scores (B, H, K), or binary, summed over classes. y: (B,) or (B, K)."""
    if y.dim() == 1:
        return -scores.log_softmax(2).gather(2, y[:, None, None].expand(-1, scores.shape[1], 1)).mean((0, 2))
    sign = y[:, None].to(scores.dtype)
    return (torch.nn.functional.softplus(-sign * scores) * (sign != 0)).sum(2).mean(0)


@torch.no_grad()
def scores_of(stack: Stack, tokens: Tokens, rows: np.ndarray) -> Iterator[Tensor]:
    """Yield scores (H, n, K) of blocks of rows, in order."""
    like = stack.values["bias"]
    for block in tokens.blocks(rows):
        yield stack.scores(tokens.read(block, like)).transpose(0, 1)
