"""SimCLR: every image is a class of its own (Chen et al. 2020, arXiv 2002.05709)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import SIMCLR
from sslkit.embeddings import Embeddings, mean_over_ranks, own_rows
from sslkit.layers.heads import mlp
from sslkit.layers.similarities import log_sum_exp
from sslkit.objectives.base import Objective, check_above_zero
from sslkit.options.ranges import Temperature, Width


class SimCLR(Objective):
    """align + constrain is NT-Xent, split as in Wang & Isola 2020: alignment and uniformity.

    temperature: divides every cosine; smaller means harder negatives. Published: 0.1 (ImageNet) to 0.5 (CIFAR-10).
    hidden: width of the projector; None takes the backbone's width (2048 for a ResNet-50, as published).
    dim: width of z.
    """

    views = SIMCLR

    def __init__(
        self, backbone: nn.Module, *, temperature: Temperature = 0.2, hidden: Width | None = None, dim: Width = 128
    ) -> None:
        super().__init__(backbone)
        check_above_zero(temperature=temperature)
        self.temperature = temperature
        self.dim = dim
        self.projector = mlp(backbone.width, hidden or backbone.width, dim)

    def align(self, e: Embeddings) -> Tensor:
        """Minus the mean cosine of every ordered pair of views of one image, over the temperature."""
        z = F.normalize(e.z, dim=-1)  # (V, N, D)
        v = len(z)
        # sum over ordered pairs u != v of z_u . z_v = |sum_v z_v|^2 - V
        pairs = z.sum(0).square().sum(-1) - v
        return -pairs.mean() / (v * (v - 1) * self.temperature)

    def constrain(self, e: Embeddings) -> Tensor:
        """Mean log-sum-exp of each view's cosines with all other views; each rank has the rows of its own images."""
        rows, itself, z = own_among_all(e)
        return mean_over_ranks(log_sum_exp(rows, z, temperature=self.temperature, without=itself).mean())


def own_among_all(e: Embeddings) -> tuple[Tensor, Tensor, Tensor]:
    """All views of this rank's n images (V n, D), their numbers among those of all ranks, and these (V N, D).

    Each has length 1.
    """
    z = F.normalize(e.z.flatten(0, 1), dim=-1)
    numbers = torch.arange(len(z), device=z.device)
    rows, itself = (own_rows(x.unflatten(0, e.z.shape[:2])).flatten(0, 1) for x in (z, numbers))
    return rows, itself, z
