"""Barlow Twins: the cross-correlation of two views becomes the identity (Zbontar et al. 2021, arXiv 2103.03230)."""

from itertools import combinations

import torch
from torch import Tensor, nn

from sslkit.data.views.recipe import BYOL
from sslkit.embeddings import Embeddings
from sslkit.layers.heads import mlp
from sslkit.objectives.base import Objective
from sslkit.options.ranges import Weight, Width

EPS = 1e-5  # added to the variance, as in the authors' code: a dead dimension gives 0, not NaN


def standardize(z: Tensor) -> Tensor:
    """z (..., N, D) with mean 0 and (biased) variance 1 over the N images, for each dimension."""
    z = z - z.mean(-2, keepdim=True)
    return z * torch.rsqrt(z.square().mean(-2, keepdim=True) + EPS)


def off_diagonal(a: Tensor, b: Tensor) -> Tensor:
    """Sum of squares off the diagonal of a^T b, which is D x D: (..., N, D), (..., N, D) -> (...).

    Computed as ||a^T b||^2 = <a a^T, b b^T> where N x N products (one if b is a, else two) are cheaper. The diagonal is
    then subtracted without loss of precision: at rank N < D not all of the sum is on it.
    """
    n, d = a.shape[-2:]
    if (n if b is a else 2 * n) < d:
        rows = a @ a.mT
        others = rows if b is a else b @ b.mT
        return (rows * others).sum((-2, -1)) - (a * b).sum(-2).square().sum(-1)
    c = a.mT @ b
    c.diagonal(dim1=-2, dim2=-1).zero_()
    return torch.linalg.vector_norm(c, dim=(-2, -1)).square()  # a sum of squares would need a second D x D matrix


class BarlowTwins(Objective):
    """align makes each dimension agree between the views, constrain decorrelates the dimensions.

    Eq. 1 of the paper: sum_i (1 - C_ii)^2 + redundancy * sum_{i != j} C_ij^2, C the correlation, over the images of
    all ranks, of each dimension in one view with each in the other. More than two views: the mean over their pairs.

    redundancy: weight of the off-diagonal sum, lambda in the paper.
    hidden: width of the three-layer projector; None takes four times the backbone's (8192 for a ResNet-50, as
        published). dim: width of z; None likewise.
    view_by_view: True: one pass for each view, whose batch norms see it alone, as in the authors' code; False: one for
        all views, as in all numbers of this package.
    """

    views = BYOL
    least_images = 3  # with two images every correlation is 1 or -1 for any network: there is no gradient

    def __init__(
        self,
        backbone: nn.Module,
        *,
        redundancy: Weight = 0.005,
        hidden: Width | None = None,
        dim: Width | None = None,
        view_by_view: bool = False,
    ) -> None:
        super().__init__(backbone)
        self.view_by_view = view_by_view
        self.redundancy = redundancy
        self.dim = dim or 4 * backbone.width
        self.projector = mlp(backbone.width, hidden or 4 * backbone.width, self.dim, layers=3)

    def align(self, e: Embeddings) -> Tensor:
        """The sum over dimensions of (1 - C_ii)^2."""
        pairs = combinations(standardize(e.z), 2)
        return torch.stack([(1 - (a * b).mean(0)).square().sum() for a, b in pairs]).mean()

    def constrain(self, e: Embeddings) -> Tensor:
        """The sum over pairs of dimensions of C_ij^2, times its weight."""
        n = e.z.shape[1]
        pairs = combinations(standardize(e.z), 2)
        return self.redundancy / n**2 * torch.stack([off_diagonal(a, b) for a, b in pairs]).mean()
