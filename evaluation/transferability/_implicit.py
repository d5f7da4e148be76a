"""The probe of ITM: its implicit update, its gradient by hand, and its training."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

BATCH = 256  # rows a step, as published
TAIL = 32  # a smaller last batch is merged into the one before: a step of few rows is mostly noise
CHECK_EVERY = 100  # steps between two scores on the held-out rows, of which the best counts
RATE, DECAY, HORIZON = 5e-3, 1e-2, 10_000  # AdamW; the rate falls linearly to 0 at HORIZON, as published


@dataclass(frozen=True)
class Update:
    """The implicit update of embeddings: R <- (I - eta / B E E') R, `times` times; R: residuals to the prototypes.

    centre_weight: of the pull towards the prototypes in the loss (lambda of eq. 8).
    """

    eta: float = 0.5
    times: int = 1
    centre_weight: float = 0.0

    def __call__(self, residual: Tensor, embedding: Tensor) -> Tensor:
        """Return R after the update; also maps its gradient, as it is symmetric. O(B C min(B, C))."""
        for _ in range(self.times):
            residual = self.once(residual, embedding)
        return residual

    def once(self, residual: Tensor, embedding: Tensor) -> Tensor:
        rows, classes = embedding.shape
        factors = (embedding @ embedding.T, residual) if rows < classes else (embedding, embedding.T @ residual)
        return torch.addmm(residual, *factors, alpha=-self.eta / rows)


class Probe:
    """psi: D -> C, rows to unit length, the update, head: C -> C. Its weights are one vector, for one AdamW step.

    like: its type and device.
    """

    def __init__(self, d: int, c: int, rng: torch.Generator, like: Tensor) -> None:
        shapes = [(c, d), (c,), (c, c), (c,)]
        bounds = [max(fan, 1) ** -0.5 for fan in (d, d, c, c)]  # torch's own for Linear
        units = [2 * torch.rand(*shape, generator=rng, dtype=torch.float64) - 1 for shape in shapes]
        drawn = [unit * bound for unit, bound in zip(units, bounds, strict=True)]
        self.vector = torch.cat([tensor.flatten() for tensor in drawn]).to(like)
        self.vector.grad = torch.zeros_like(self.vector)
        self.weight, self.bias, self.head, self.head_bias = _views(self.vector, shapes)
        self.gradients = _views(self.vector.grad, shapes)

    def embed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows of unit length (B, C), and their original lengths (B, 1)."""
        u = torch.addmm(self.bias, x, self.weight.T)
        lengths = torch.linalg.vector_norm(u, dim=1, keepdim=True).clamp_min_(1e-12)
        return u / lengths, lengths

    def logits(self, embedding: Tensor) -> Tensor:
        return torch.addmm(self.head_bias, embedding, self.head.T)

    def differentiate(self, x: Tensor, targets: Tensor, update: Update, centres: Tensor | None = None) -> None:
        """Write the gradient of CE(head(E1), y) + centre_weight MSE(E1, P) to `vector.grad`; the kernel has none.

        x: (B, D). targets: (B, C) one-hot labels. centres: (B, C) the rows' prototypes P; None: the targets.
        """
        centres = targets if centres is None else centres
        embedding, lengths = self.embed(x)
        residual = update(embedding - centres, embedding)
        moved = centres + residual
        error = torch.softmax(self.logits(moved), 1).sub_(targets).div_(len(x))
        back = error @ self.head
        if update.centre_weight:
            back += residual * (2 * update.centre_weight / residual.numel())
        back = update(back, embedding)
        back -= embedding * (embedding * back).sum(1, keepdim=True)
        back /= lengths
        weight, bias, head, head_bias = self.gradients
        torch.mm(back.T, x, out=weight)
        torch.sum(back, 0, out=bias)
        torch.mm(error.T, moved, out=head)
        torch.sum(error, 0, out=head_bias)


@dataclass(frozen=True)
class Parts:
    """Standardised training and held-out rows. x, held_x: (n, D). y, held_y: (n,) int64.

    prototypes: (C, C), a unit vector for each class; None: one-hot.
    """

    x: Tensor
    y: Tensor
    held_x: Tensor
    held_y: Tensor
    n_classes: int
    prototypes: Tensor | None = None

    def centres(self, y: Tensor) -> Tensor:
        """(B, C) the prototypes of labels."""
        return one_hot(y, self.n_classes).to(self.x.dtype) if self.prototypes is None else self.prototypes[y]


def prototypes(kind: str, classes: int, rng: torch.Generator) -> Tensor | None:
    """(C, C) float64 unit rows, one for each class; None for "one_hot".

    random: normal vectors at length 1, not orthogonal. pca, laplacian: orthogonal, the principal axes of 4 C random
    points, and the eigenvectors of the normalised graph Laplacian of C random points; the paper (figure 5) names the
    two without more.
    """
    if kind == "one_hot":
        return None
    points = torch.randn(4 * classes if kind == "pca" else classes, classes, generator=rng, dtype=torch.float64)
    if kind == "random":
        return torch.nn.functional.normalize(points, dim=1)
    if kind == "pca":
        return torch.linalg.svd(points - points.mean(0), full_matrices=False).Vh
    weights = torch.exp(-torch.cdist(points, points).square() / (2 * classes))
    degrees = weights.sum(1).rsqrt()
    laplacian = torch.eye(classes, dtype=torch.float64) - degrees[:, None] * weights * degrees
    return torch.linalg.eigh(laplacian).eigenvectors.T


def train(
    parts: Parts, update: Update, iterations: int, rng: torch.Generator, batch_size: int
) -> Iterator[tuple[int, Probe]]:
    """Yield (step, probe) at each check: every 100 steps and the last."""
    probe = Probe(parts.x.shape[1], parts.n_classes, rng, parts.x)
    optimizer = torch.optim.AdamW([probe.vector], lr=RATE, weight_decay=DECAY, fused=True)
    targets = one_hot(parts.y, parts.n_classes).to(parts.x.dtype)
    centres = None if parts.prototypes is None else parts.prototypes[parts.y]
    room = parts.x.new_empty(min(len(parts.x), batch_size + TAIL), parts.x.shape[1])
    queue: list[Tensor] = []
    for step in range(iterations):
        queue = queue or batches(torch.randperm(len(parts.x), generator=rng).to(parts.x.device), batch_size)
        rows = queue.pop(0)
        x = torch.index_select(parts.x, 0, rows, out=room[: len(rows)])
        probe.differentiate(x, targets[rows], update, None if centres is None else centres[rows])
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / HORIZON)
        optimizer.step()
        if (step + 1) % CHECK_EVERY == 0 or step + 1 == iterations:
            yield step + 1, probe


def batches(rows: Tensor, size: int = BATCH) -> list[Tensor]:
    """Return batches of rows; a tail below 32 joins the last, as an update of few rows almost gives the labels."""
    parts = rows.split(size)
    merged = len(parts) > 1 and len(parts[-1]) < TAIL
    return [*parts[:-2], torch.cat(parts[-2:])] if merged else list(parts)


def held_embedding(probe: Probe, parts: Parts, update: Update, evaluate: str, batch_size: int) -> Tensor:
    """Return embeddings (N_val, C) of the held-out rows after the update given by `evaluate`."""
    embedding, _ = probe.embed(parts.held_x)
    if evaluate == "none":
        return embedding
    if evaluate == "transductive":
        targets = parts.centres(parts.held_y).to(embedding.dtype)
        groups = batches(torch.arange(len(embedding), device=embedding.device), batch_size)
        return torch.cat([targets[g] + update(embedding[g] - targets[g], embedding[g]) for g in groups])
    train_embedding, _ = probe.embed(parts.x)
    residual = train_embedding - parts.centres(parts.y).to(train_embedding.dtype)
    moved = embedding
    for already in range(update.times):
        residual = update.once(residual, train_embedding) if already else residual
        moved = torch.addmm(moved, embedding, train_embedding.T @ residual, alpha=-update.eta / len(train_embedding))
    return moved


def _views(vector: Tensor, shapes: list[tuple[int, ...]]) -> list[Tensor]:
    sizes = [torch.Size(shape).numel() for shape in shapes]
    return [chunk.view(shape) for chunk, shape in zip(vector.split(sizes), shapes, strict=True)]
