"""ITM: held-out accuracy of a short, normalised linear probe with an implicit update of its embedding."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from evaluation.transferability._scatter import by_class, varying
from evaluation.transferability._threads import threads
from evaluation.transferability.base import Sample, Score
from sslkit.errors import UserError

BATCH = 256
TAIL = 32  # a smaller last batch is merged into the one before
CHECK_EVERY = 100
FEW = 100  # classes: with fewer, products of a few hundred rows take longer on two threads than on one
RATE, DECAY, HORIZON = 5e-3, 1e-2, 10_000  # AdamW; the rate falls linearly to 0 at HORIZON, as published
PRECISION = torch.float32  # of the 500 steps, as published; the statistics before them are float64
WAYS = ("train_kernel", "transductive", "none")


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
        self.vector = torch.cat([part.flatten() for part in drawn]).to(like)
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

    def differentiate(self, x: Tensor, targets: Tensor, update: Update) -> None:
        """Write the gradient of CE(head(E1), y) + centre_weight MSE(E1, P) to `vector.grad`; the kernel has none.

        x: (B, D). targets: (B, C) one-hot, both the labels and the prototypes P.
        """
        embedding, lengths = self.embed(x)
        residual = update(embedding - targets, embedding)
        moved = targets + residual
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
    """Standardised training and held-out rows. x, held_x: (n, D). y, held_y: (n,) int64."""

    x: Tensor
    y: Tensor
    held_x: Tensor
    held_y: Tensor
    n_classes: int


def split(y: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Split into training and held-out rows, about 4 : 1 in each class, each in random order.

    Every class keeps a training image. Raises UserError if no image can be held out.
    """
    order = torch.randperm(len(y), generator=rng)
    counts = torch.bincount(y)
    shares = counts.double() / 5
    held = shares.floor()
    wanted = max(round(len(y) / 5), 1) - int(held.sum())
    left = torch.where(counts > held + 1, shares - held + 1e-6 * torch.rand(len(counts), generator=rng), -1.0)
    more = left.argsort(descending=True)[: max(wanted, 0)]
    held[more[left[more] >= 0]] += 1
    if held.sum() == 0:
        raise UserError("itm needs a class with at least 2 images, as it holds out a fifth of the images")
    rows, place = by_class(y, order)
    is_held = torch.zeros(len(y), dtype=torch.bool)
    is_held[rows[place < held[y[rows]]]] = True
    return order[~is_held[order]], order[is_held[order]]


def spread(x: Tensor, y: Tensor) -> float:
    """Return the mean distance of the rows from their class mean, over sqrt(D): eq. 12's dis, independent of D."""
    counts = torch.bincount(y).to(x)
    means = torch.zeros(len(counts), x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, y, x)
    means /= counts[:, None]
    return float((x - means[y]).norm(dim=1).mean()) / max(x.shape[1], 1) ** 0.5


def adaptive_eta(dis: float, base_spread: float = 0.9) -> float:
    """Return eta by eq. 12: larger for features far from their class means. base_spread: dis at which eta is 0.5."""
    return min(max(1 - 0.5 * base_spread / dis, 0.05), 0.95) if dis > 0 else 0.05


def score(
    sample: Sample,
    *,
    eta: float | str = 0.5,
    evaluate: str = "train_kernel",
    iterations: int = 500,
    last: bool = False,
    repeats: int = 1,
    times: int = 1,
    centre_weight: float = 0.0,
    base_spread: float = 0.9,
) -> Score:
    """Held-out accuracy (on a fifth) of a probe trained for `iterations` steps, the best of checks every 100 steps.

    U = X W' + b, E = rows of U at length 1, P = one-hot labels, E1 = (I - K) E + K P, K = eta / B E E' (no gradient);
    CE(E1 H' + h, y) by AdamW. With eta = 0 an ordinary probe of unit embeddings.
    eta: step of an update towards the prototypes; "adaptive" by the features' spread (eq. 12, with dis over sqrt(D)
        and base_spread, as the paper gives no number).
    evaluate: "train_kernel" moves held-out images by the training images' residuals and uses their labels only for
        the score; "transductive" is the published check, which moves each towards its own label; "none".
    last: use the last check instead of the best, which is chosen on the labels of the score.
    repeats: splits and starts to average over; `terms` are then None, since images are held out more than once.
    times: updates a step (n of eq. 7). centre_weight: of MSE(E1, P) in the loss.

    Range: 0 to 1, in steps of 1 / N_val; ties can be broken by diagnostics["cross_entropy"], lower is better.
    Cost: O(iterations (256 D C + 256 C^2)), independent of N; the C^2 is psi's head.
    Source: Implicit Modeling for Transferability Estimation of Vision Foundation Models, 2025, arXiv 2510.23145,
    eqs. 7 and 12; deviations: standardised by the training part only, stratified split. The 500 steps are float32, as
    published: on random data the accuracies are those of float64, in 0.45 to 0.65 of the time.
    Not for: fewer held-out images than classes, where it is coarse; "transductive" is no accuracy on unseen images.
    """
    _check(eta, evaluate, {"iterations": iterations, "repeats": repeats, "times": times})
    if not (0 <= centre_weight < torch.inf and 0 < base_spread < torch.inf):
        raise UserError(f"itm centre_weight={centre_weight} must be at least 0 and base_spread={base_spread} above 0")
    runs = []
    for repeat in range(repeats):
        rng = sample.generator(f"itm {repeat}")
        parts = _parts(sample, rng)
        step = adaptive_eta(spread(parts.x, parts.y), base_spread) if eta == "adaptive" else float(eta)
        with threads(1 if sample.n_classes < FEW else torch.get_num_threads()):
            runs.append(_Run.of(parts, Update(step, times, centre_weight), evaluate, iterations, last, rng))
    held, warnings = len(runs[0].right), ()
    if held < sample.n_classes:
        warnings = (f"{held} held-out images for {sample.n_classes} classes: the score is coarse",)
    value = sum(float(run.right.mean()) for run in runs) / repeats
    return Score(value, _diagnostics(runs, iterations, held), warnings, runs[0].right if repeats == 1 else None)


def train(parts: Parts, update: Update, iterations: int, rng: torch.Generator) -> Iterator[tuple[int, Probe]]:
    """Yield (step, probe) at each check: every 100 steps and the last."""
    probe = Probe(parts.x.shape[1], parts.n_classes, rng, parts.x)
    optimizer = torch.optim.AdamW([probe.vector], lr=RATE, weight_decay=DECAY, fused=True)
    targets = one_hot(parts.y, parts.n_classes).to(parts.x.dtype)
    room = parts.x.new_empty(min(len(parts.x), BATCH + TAIL), parts.x.shape[1])
    queue: list[Tensor] = []
    for step in range(iterations):
        queue = queue or batches(torch.randperm(len(parts.x), generator=rng).to(parts.x.device))
        rows = queue.pop(0)
        x = torch.index_select(parts.x, 0, rows, out=room[: len(rows)])
        probe.differentiate(x, targets[rows], update)
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / HORIZON)
        optimizer.step()
        if (step + 1) % CHECK_EVERY == 0 or step + 1 == iterations:
            yield step + 1, probe


def batches(rows: Tensor) -> list[Tensor]:
    """Return batches of 256 rows; a tail below 32 joins the last, as an update of few rows almost gives the labels."""
    parts = rows.split(BATCH)
    merged = len(parts) > 1 and len(parts[-1]) < TAIL
    return [*parts[:-2], torch.cat(parts[-2:])] if merged else list(parts)


def held_embedding(probe: Probe, parts: Parts, update: Update, evaluate: str) -> Tensor:
    """Return embeddings (N_val, C) of the held-out rows after the update given by `evaluate`."""
    embedding, _ = probe.embed(parts.held_x)
    if evaluate == "none":
        return embedding
    if evaluate == "transductive":
        targets = one_hot(parts.held_y, parts.n_classes).to(embedding.dtype)
        groups = batches(torch.arange(len(embedding), device=embedding.device))
        return torch.cat([targets[g] + update(embedding[g] - targets[g], embedding[g]) for g in groups])
    known, _ = probe.embed(parts.x)
    residual = known - one_hot(parts.y, parts.n_classes).to(known.dtype)
    moved = embedding
    for already in range(update.times):
        residual = update.once(residual, known) if already else residual
        moved = torch.addmm(moved, embedding, known.T @ residual, alpha=-update.eta / len(known))
    return moved


@dataclass(frozen=True)
class _Run:
    """The checks of one split and start, and the correct images of the chosen one."""

    eta: float
    steps: list[int]
    accuracy: list[float]
    cross_entropy: list[float]
    chosen: int
    right: Tensor

    @classmethod
    def of(cls, parts: Parts, update: Update, evaluate: str, iterations: int, last: bool, rng: Any) -> "_Run":
        steps, rights, losses = [], [], []
        for step, probe in train(parts, update, iterations, rng):
            logits = probe.logits(held_embedding(probe, parts, update, evaluate)).double()
            steps.append(step)
            rights.append((logits.argmax(1) == parts.held_y).double())
            losses.append(float(cross_entropy(logits, parts.held_y)))
        accuracy = [float(right.mean()) for right in rights]
        chosen = len(steps) - 1 if last else max(range(len(steps)), key=lambda k: (accuracy[k], -losses[k]))
        return cls(update.eta, steps, accuracy, losses, chosen, rights[chosen])


def _diagnostics(runs: list[_Run], iterations: int, held: int) -> dict[str, Any]:
    n = len(runs)
    return {
        "eta": sum(run.eta for run in runs) / n,
        "iterations": iterations,
        "best_iteration": runs[0].steps[runs[0].chosen],
        "cross_entropy": sum(run.cross_entropy[run.chosen] for run in runs) / n,
        "accuracy_curve": [sum(column) / n for column in zip(*(run.accuracy for run in runs), strict=True)],
        "cross_entropy_curve": [sum(column) / n for column in zip(*(run.cross_entropy for run in runs), strict=True)],
        "held_out": held,
    }


def _parts(sample: Sample, rng: torch.Generator) -> Parts:
    """Split and standardise in float64 by the training part, which also determines the constant columns."""
    y = sample.labels
    rows, held = (part.to(y.device) for part in split(y.cpu(), rng))
    x, held_x = _standardised(sample.take(rows).features, sample.take(held).features)
    return Parts(x, y[rows], held_x, y[held], sample.n_classes)


def _standardised(x: Tensor, held_x: Tensor) -> list[Tensor]:
    mean = x.mean(0)
    x, held_x = x.sub_(mean), held_x.sub_(mean)
    std = torch.linalg.vector_norm(x, dim=0) / max(len(x) - 1, 1) ** 0.5
    kept = varying(std, mean, len(x))
    if not kept.all():
        x, held_x, std = x[:, kept], held_x[:, kept], std[kept]
    return [part.div_(std).to(PRECISION) for part in (x, held_x)]


def _check(eta: float | str, evaluate: str, counts: dict[str, int]) -> None:
    if evaluate not in WAYS:
        raise UserError(f"itm evaluate={evaluate!r} must be one of {', '.join(WAYS)}")
    if not (eta == "adaptive" if isinstance(eta, str) else 0 <= eta <= 1):
        raise UserError(f'itm eta={eta!r} must be a number from 0 to 1, or "adaptive"')
    for name, value in counts.items():
        if value < 1:
            raise UserError(f"itm {name}={value} must be at least 1")
    if counts["iterations"] > HORIZON:
        raise UserError(f"itm iterations={counts['iterations']}: the learning rate is 0 after {HORIZON}")


def _views(vector: Tensor, shapes: list[tuple[int, ...]]) -> list[Tensor]:
    sizes = [torch.Size(shape).numel() for shape in shapes]
    return [part.view(shape) for part, shape in zip(vector.split(sizes), shapes, strict=True)]
