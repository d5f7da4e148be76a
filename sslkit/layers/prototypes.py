"""Multi-crop training on prototypes, shared by SwAV and DINO: views are assigned to learned directions."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.embeddings import Embeddings, along, each_resolution, stack
from sslkit.errors import UserError
from sslkit.layers.heads import UnitLength
from sslkit.layers.similarities import log_sum_exp
from sslkit.runtime import distributed


@dataclass
class Crops(Embeddings):
    """z: of the V full-size views. local: (L, N, D), z of the L local crops, with gradient; None if there are none."""

    local: Tensor | None = along(1, default=None)

    def projections(self) -> Tensor:
        """(V + L, N, D) of the full-size views, then of the local crops."""
        return self.z if self.local is None else torch.cat([self.z, self.local])

    def directions(self) -> Tensor:
        """(V + L, N, D) all projections, each of length 1."""
        return F.normalize(self.projections(), dim=-1)


def embed_crops(backbone: nn.Module, projector: nn.Module, views: Sequence[Tensor], v: int, index: Tensor) -> Crops:
    """Embed the crops, one backbone forward per resolution, one of the projector. v: number of full-size views."""
    h = torch.cat([backbone(pixels) for pixels in each_resolution(views)])
    z, h = stack(len(views), projector(h), h)
    return Crops(z=z[:v], h=h[:v], target=None, index=index, local=z[v:] if len(views) > v else None)


def prediction_head(projector: nn.Sequential, prototypes: Tensor, temperature: float) -> nn.Sequential:
    """Layers from features (N, F) to the logits (N, K) whose softmax is a crop's prediction in `predict_swapped`.

    prototypes: (K, D), of any length.
    """
    last = nn.utils.skip_init(nn.Linear, prototypes.shape[1], len(prototypes), bias=False)
    last.weight = nn.Parameter(F.normalize(prototypes.detach(), dim=1) / temperature, requires_grad=False)
    return nn.Sequential(*projector, UnitLength(), last)


def held(weight: Tensor, frozen: bool) -> Tensor:
    """The weight; if frozen, without a gradient, for which an optimiser skips it.

    Of several processes with one of zero, which DDP waits for; `Method.before_step` drops it. With zeros Adam would
    count the frozen steps, and move two to three times as far in the first ones after them.
    """
    if not frozen:
        return weight
    return weight.detach() + 0 * weight if distributed.world_size() > 1 else weight.detach()


def predict_swapped(codes: Tensor, z: Tensor, prototypes: Tensor, temperature: float, *, tf32: bool = False) -> Tensor:
    """Mean cross-entropy of each code with the prediction from every other crop of its image. Scalar.

    codes: (V, N, K) of the first V crops, each sums to 1. z: (C, N, D), prototypes: (K, D), of length 1.
    tf32: of the crops' logits, see `similarities.product`.
    SwAV's eq. 2 and DINO's eq. 3, averaged over the V (C - 1) pairs and the images.
    """
    v, c = len(codes), len(z)
    # -sum_k q_k log softmax(s)_k = logsumexp(s) - q . s, and q . (C z) = (C' q) . z is a product in D, not in K: no
    # tensor over all crops is K wide, and codes are summed before they are multiplied with a crop.
    z = z / temperature
    expected = codes @ prototypes
    agreement = (expected.sum(0) * z.sum(0)).sum(-1) - (expected * z[:v]).sum((0, 2))
    partition = log_sum_exp(z, prototypes, tf32=tf32)
    partition = v * partition.sum(0) - partition[:v].sum(0)
    return (partition - agreement).mean() / (v * (c - 1))


@torch.no_grad()
def sinkhorn(scores: Tensor, epsilon: float, iterations: int) -> Tensor:
    """Codes Q (..., B, K) of the scores (..., B, K): softmax(scores / epsilon), scaled to clusters of equal size.

    Each iteration scales Q until every prototype has the share B / K, then until every row sums to 1 (eqs. 3 to 5).
    Computed in logarithms: in fp32 exp(scores / epsilon) overflows at |scores| / epsilon = 88, and underflows sooner.
    """
    q = scores / epsilon
    for _ in range(iterations):
        q -= torch.logsumexp(q, dim=-2, keepdim=True)
        q -= torch.logsumexp(q, dim=-1, keepdim=True)
    return q.exp_()


@torch.no_grad()
def sinkhorn_of_ranks(scores: Tensor, epsilon: float, iterations: int) -> Tensor:
    """`sinkhorn` over the rows of all ranks: this rank's scores (B, K) -> its codes. B may differ between ranks."""
    q = scores / epsilon
    for _ in range(iterations):
        q -= torch.logsumexp(distributed.gather(torch.logsumexp(q, dim=0, keepdim=True)), dim=0)
        q -= torch.logsumexp(q, dim=-1, keepdim=True)
    return q.exp_()


@torch.no_grad()
def sinkhorn_of_cosines(logits: Tensor, epsilon: float, iterations: int) -> Tensor:
    """`sinkhorn_of_ranks` of logits (B, K), cosines over epsilon; they are overwritten. An iteration reads them twice.

    Q stays diag(rows) exp(logits) diag(columns), and the two vectors are changed. For epsilon from 1 / 30 on no product
    of them leaves fp32's range; below, the logarithms of `sinkhorn_of_ranks` are taken.
    """
    if epsilon < 1 / 30:
        return sinkhorn_of_ranks(logits, 1.0, iterations)
    q = logits.exp_()
    rows, columns = q.new_ones(q.shape[0]), q.new_ones(q.shape[1])
    for _ in range(iterations):
        columns = distributed.sum_over_ranks(rows @ q).reciprocal()
        rows = (q @ columns).reciprocal()
    return q.mul_(columns).mul_(rows[:, None])


def check_options(name: str, prototypes: int, **positive: float) -> None:
    """Raises UserError for fewer than two prototypes, and for an option in `positive` that is not above 0."""
    if prototypes < 2:
        raise UserError(f"{name}: prototypes must be at least 2, got {prototypes}")
    for option, value in positive.items():
        if not value > 0:
            raise UserError(f"{name}: {option}={value} must be above 0")
