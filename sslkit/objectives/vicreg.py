"""VICReg: views agree, dimensions vary and do not covary (Bardes et al. 2022, arXiv 2105.04906)."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from sslkit.data.views.recipe import BYOL, ViewRecipe
from sslkit.embeddings import Embeddings
from sslkit.layers.heads import mlp
from sslkit.objectives.barlow_twins import off_diagonal
from sslkit.objectives.base import Objective
from sslkit.options.ranges import Weight, Width

EPS = 1e-4  # of the variance, as published

_VIEW = replace(BYOL.views[0], blur=0.5, solarize=0.1)


def invariance(z: Tensor) -> Tensor:
    """Mean squared difference of two views, mean over their pairs (eq. 5, over D): (V, ..., N, D) -> (...)."""
    # the sum of squared differences over all pairs is V times the sum of squared distances from the mean
    return 2 / (len(z) - 1) * (z - z.mean(0)).square().mean((-2, -1)).sum(0)


def variance(z: Tensor) -> Tensor:
    """Hinge of each dimension's standard deviation below 1, mean over dimensions (eqs. 1, 2): (..., N, D) -> (...)."""
    return torch.relu(1 - (z.var(-2) + EPS).sqrt()).mean(-1)


def covariance(z: Tensor) -> Tensor:
    """Sum of squared covariances of pairs of dimensions, over D (eqs. 3 and 4): (..., N, D) -> (...)."""
    n, d = z.shape[-2:]
    z = z - z.mean(-2, keepdim=True)
    return off_diagonal(z, z) / ((n - 1) ** 2 * d)


class VICReg(Objective):
    """align is the invariance, constrain the variance and the covariance of each view; `watched` has both separately.

    Eq. 6 of the paper as its authors computed it: of two views the mean invariance and variance and the sum of the
    covariances. More views: means over pairs and views, the covariance twice. Both views have the paper's distribution
    (its appendix): the average of BYOL's pair, which the authors' code uses.

    invariance, variance, covariance: weights of the three terms.
    hidden: width of the three-layer expander; None takes four times the backbone's (8192 for a ResNet-50, as
        published). dim: width of z; None likewise.
    """

    views = ViewRecipe((_VIEW, _VIEW))

    def __init__(
        self,
        backbone: nn.Module,
        *,
        invariance: Weight = 25.0,
        variance: Weight = 25.0,
        covariance: Weight = 1.0,
        hidden: Width | None = None,
        dim: Width | None = None,
    ) -> None:
        super().__init__(backbone)
        self.invariance, self.variance, self.covariance = invariance, variance, covariance
        self.dim = dim or 4 * backbone.width
        self.projector = mlp(backbone.width, hidden or 4 * backbone.width, self.dim, layers=3)

    def align(self, e: Embeddings) -> Tensor:
        """The weighted invariance."""
        return self.invariance * invariance(e.z)

    def constrain(self, e: Embeddings) -> Tensor:
        """The weighted variance and covariance."""
        spread = self.variance * variance(e.z).mean()
        overlap = self.covariance * 2 * covariance(e.z).mean()
        self.watched |= {"variance": spread.detach(), "covariance": overlap.detach()}
        return spread + overlap
