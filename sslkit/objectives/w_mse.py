"""W-MSE: views agree after the batch is whitened, so they cannot collapse (Ermolov et al. 2021, arXiv 2007.06346)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.embeddings import Embeddings, along
from sslkit.errors import UserError
from sslkit.layers.heads import mlp
from sslkit.objectives.base import Objective
from sslkit.options.ranges import Depth, PartialShare, Rows, Width
from sslkit.runtime import distributed
from sslkit.runtime.device import to_device_of

_VIEW = View(scale=(0.2, 1.0), grayscale=0.1)


@dataclass
class Shuffled(Embeddings):
    """order: (iterations, N) permutations of the images of all ranks, in the order of the batch; equal on all ranks."""

    order: Tensor | None = along(None, default=None)


def whiten(x: Tensor, eps: float = 0.0) -> Tensor:
    """x (..., n, D) with mean 0 and covariance I over its n > D rows (section 3 of the paper).

    y = L^-1 (x - mean), L the Cholesky factor of (1 - eps) covariance + eps m I, m the mean of the covariance's
    diagonal. A covariance without a factor gives NaN, so that nothing waits for the device.
    """
    n, d = x.shape[-2:]
    x = x - x.mean(-2, keepdim=True)
    cov = x.mT @ x / (n - 1)
    level = eps * cov.diagonal(dim1=-2, dim2=-1).mean(-1)
    cov = (1 - eps) * cov + level[..., None, None] * torch.eye(d, dtype=x.dtype, device=x.device)
    factor, failed = torch.linalg.cholesky_ex(cov)
    factor = factor.masked_fill((failed > 0)[..., None, None], torch.nan)
    return torch.linalg.solve_triangular(factor.mT, x, upper=True, left=False)


def whiten_parts(x: Tensor, size: int, eps: float = 0.0) -> Tensor:
    """x (..., N, D), whitened in N // size parts of neighbouring rows, whose sizes differ by at most one.

    Each part has at least `size` rows and every image is used; the longer parts come first.
    """
    n = x.shape[-2]
    parts = n // size
    short, longer = divmod(n, parts)
    head, tail = x.split([longer * (short + 1), (parts - longer) * short], dim=-2)
    whitened = [
        whiten(rows.unflatten(-2, (k, -1)), eps).flatten(-3, -2)
        for rows, k in ((head, longer), (tail, parts - longer))
        if k
    ]
    return torch.cat(whitened, -2)


class WMSE(Objective):
    """align: mean over images and pairs of views of ||y - y'||^2, y the whitened z at length 1. constrain: None.

    Whitening is the constraint: it keeps the variance of every direction of z. A random permutation of the images of
    all ranks is cut into sub-batches, and each view of a sub-batch is whitened separately; in fp32, or fp64 if z is. If
    the sub-batch does not divide the batch, sub-batches are fewer and larger, so that all images are used. z is not
    whitened. The views are the paper's for CIFAR-10 up to 64 pixels; above, those of its ImageNet-100 runs except for
    the smallest crop (0.08 there) and the share of gray views (0.2 there).

    whitening_size: smallest sub-batch, and so smallest batch, in images; None is 2 dim, the authors' rule.
    whitening_iters: permutations per step, over which the loss is averaged (published: 1; 4 for STL-10 and Tiny
        ImageNet with two views).
    whitening_eps: share of the covariance replaced by a multiple of the identity. 0 in the paper; a small value keeps
        a batch finite in which some direction of z has collapsed.
    hidden: width of the projector; None takes twice the backbone's (1024 for a ResNet-18, as published).
    dim: width of z (published: 64, with sub-batches of 128; 128 for larger images).
    Raises UserError for a whitening_size that does not exceed dim and for a batch of fewer images.
    """

    views = ViewRecipe((_VIEW, _VIEW))

    def __init__(
        self,
        backbone: nn.Module,
        *,
        whitening_size: Rows | None = None,
        whitening_iters: Depth = 1,
        whitening_eps: PartialShare = 1e-5,
        hidden: Width | None = None,
        dim: Width = 64,
    ) -> None:
        super().__init__(backbone)
        size = whitening_size or 2 * dim
        if size <= dim:
            raise UserError(
                f"w_mse cannot whiten {dim} dimensions with {size} images: "
                f"give whitening_size > dim, better {2 * dim} or more"
            )
        if whitening_iters < 1:
            raise UserError(f"w_mse: whitening_iters must be at least 1, got {whitening_iters}")
        if not 0 <= whitening_eps < 1:
            raise UserError(f"w_mse: whitening_eps must be at least 0 and below 1, got {whitening_eps}")
        self.least_images = self.whitening_size = size
        self.least_images_hint = ", or lower method.objective.dim and whitening_size"
        self.whitening_iters, self.whitening_eps = whitening_iters, whitening_eps
        self.dim = dim
        self.projector = mlp(backbone.width, hidden or 2 * backbone.width, dim)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Shuffled:
        """Embed the views and draw the permutations of this step."""
        e = super().embed(views, index)
        n = e.z.shape[1] * distributed.world_size()
        order = torch.stack([torch.randperm(n, generator=generator) for _ in range(self.whitening_iters)])
        return Shuffled(z=e.z, h=e.h, target=None, index=index, order=to_device_of(order, e.z))

    def align(self, e: Shuffled) -> Tensor:
        """The squared distance of two views of an image, whitened and normalised: 2 - 2 cos (section 3)."""
        v, n, _ = e.z.shape
        if n < self.whitening_size:
            raise UserError(
                f"w_mse whitens sub-batches of {self.whitening_size} images and this batch has {n}: "
                "raise the batch size, or lower dim and whitening_size"
            )
        z = distributed.in_batch_order(e.z, 1)[:, e.order]  # (V, iterations, N, D)
        y = F.normalize(whiten_parts(z, self.whitening_size, self.whitening_eps), dim=-1)
        # the sum over ordered pairs of views of y . y' = |sum of y|^2 - V
        cosine = (y.sum(0).square().sum(-1) - v) / (v * (v - 1))
        return 2 - 2 * cosine.mean()
