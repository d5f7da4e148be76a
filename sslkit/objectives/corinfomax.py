"""CorInfoMax: views agree, their covariances keep a large determinant (Ozsoy et al. 2022, arXiv 2209.07999)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import BYOL
from sslkit.embeddings import Embeddings
from sslkit.layers.heads import mlp
from sslkit.objectives.base import Objective
from sslkit.options.ranges import Share, Weight, Width

EPS = 1e-8  # added to the covariance's diagonal, as published


class CorInfoMax(Objective):
    """align is the squared distance of the views, constrain minus the log-determinants of their covariances.

    Both read z at length 1. The mean m and the covariance R of a view are moving averages over the steps,

        m = forgetting m_old + (1 - forgetting) mean(z),
        R = forgetting R_old + (1 - forgetting) (z - m)^T (z - m) / N,

    from 0 and the identity on, over the N images of all ranks; gradient flows through this step's z only, also in m.
    The loss is the paper's divided by D, as in the authors' code, whose weights are the defaults: the distance is a
    mean over images and dimensions, the log-determinants are over D. Averages and log-determinants are float64, as in
    the code: a covariance of fewer images than dimensions is singular but for what `forgetting` and EPS add.

    attraction: weight of the distance, alpha in the paper (2000 in the authors' ImageNet command; 250 to 1000 on
        smaller sets).
    forgetting: of the averages, lambda in the paper (0.1 in that command; 0.01 for CIFAR and ImageNet-100).
    hidden: width of the three-layer projector; None takes four times the backbone's (8192 for a ResNet-50, as
        published).
    dim: width of z; None takes a quarter of the backbone's (512 for a ResNet-50, as published).
    view_by_view: one pass for each view, whose batch norms see it alone, as in the authors' code; False: one for all.
    """

    views = BYOL
    most_views = 2

    def __init__(
        self,
        backbone: nn.Module,
        *,
        attraction: Weight = 2000.0,
        forgetting: Share = 0.1,
        hidden: Width | None = None,
        dim: Width | None = None,
        view_by_view: bool = True,
    ) -> None:
        super().__init__(backbone)
        self.view_by_view = view_by_view
        self.attraction, self.forgetting = attraction, forgetting
        self.dim = dim or max(backbone.width // 4, 1)
        self.projector = mlp(backbone.width, hidden or 4 * backbone.width, self.dim, layers=3)
        self.projector[-1].register_parameter("bias", None)  # as published
        self.register_buffer("mean", torch.zeros(2, self.dim, dtype=torch.float64))
        self.register_buffer("covariance", torch.eye(self.dim, dtype=torch.float64).repeat(2, 1, 1))

    def align(self, e: Embeddings) -> Tensor:
        """The weighted squared difference of the two views, mean over images and dimensions."""
        return self.attraction * F.mse_loss(*F.normalize(e.z, dim=-1))

    def constrain(self, e: Embeddings) -> Tensor:
        """Minus the log-determinants of both covariances, over D."""
        _, covariance = self.averages(e.z)
        level = EPS * torch.eye(self.dim, dtype=covariance.dtype, device=covariance.device)
        return -torch.linalg.slogdet(covariance + level).logabsdet.sum().div(self.dim).to(e.z.dtype)

    def averages(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (2, D) and covariance (2, D, D) after a step with z (2, N, D)."""
        z = F.normalize(z, dim=-1).double()
        mean = torch.lerp(z.mean(1), self.mean, self.forgetting)
        z = z - mean[:, None]
        return mean, torch.lerp(z.mT @ z / z.shape[1], self.covariance, self.forgetting)

    def observe(self, e: Embeddings) -> None:
        """Keep the averages; new tensors, as the step's backward comes later and needs the old ones."""
        self.mean, self.covariance = self.averages(e.z)
