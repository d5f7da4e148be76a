"""SimSiam: predict the other view's projection, with a stopped gradient (Chen & He 2021, arXiv 2011.10566)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sslkit.data.views.recipe import MOCO
from sslkit.embeddings import Predicted, stack
from sslkit.layers.heads import mlp
from sslkit.objectives.base import Objective
from sslkit.objectives.byol import cosine_with_others
from sslkit.options.ranges import Width


class SimSiam(Objective):
    """Without negatives or a teacher: the stopped gradient and the predictor prevent collapse.

    The predictor's learning rate does not decay (paper, section 4.2): `constant_lr`. target: z without gradient.

    hidden: width of the projector; None takes the backbone's (2048 for a ResNet-50, as published).
    dim: width of z; None takes the backbone's (2048, as published).
    bottleneck: width inside the predictor; None takes a quarter of dim (512, as published).
    """

    views = MOCO

    def __init__(
        self,
        backbone: nn.Module,
        *,
        hidden: Width | None = None,
        dim: Width | None = None,
        bottleneck: Width | None = None,
    ) -> None:
        super().__init__(backbone)
        self.dim = dim or backbone.width
        self.projector = mlp(backbone.width, hidden or backbone.width, self.dim, layers=3, last_norm=True)
        self.predictor = mlp(self.dim, bottleneck or max(self.dim // 4, 1), self.dim)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Predicted:
        """Embed all views in one forward."""
        h = self.backbone(torch.cat(list(views)))
        z = self.projector(h)
        h, z, prediction = stack(len(views), h, z, self.predictor(z))
        return Predicted(z=z, h=h, target=z.detach(), index=index, prediction=prediction)

    def align(self, e: Predicted) -> Tensor:
        """Minus the mean cosine of a view's prediction and another view's target: D/2 + D/2 of eq. 4 for two views."""
        return -cosine_with_others(e).mean()

    def constant_lr(self) -> Sequence[nn.Parameter]:
        """The predictor's parameters, so that it keeps up with z to the end."""
        return list(self.predictor.parameters())
