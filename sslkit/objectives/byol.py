"""BYOL: predict a slow teacher's projection of the other view (Grill et al. 2020, arXiv 2006.07733)."""

import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import BYOL as BYOL_VIEWS
from sslkit.embeddings import Predicted
from sslkit.layers.heads import mlp
from sslkit.objectives.base import WithTeacher
from sslkit.options.ranges import Share, Width

MOMENTUM = 0.996  # of the teacher at the start, as published


def cosine_with_others(e: Predicted) -> Tensor:
    """(V, N) cosine of each view's prediction with the targets of the other views of its image, their mean."""
    prediction = F.normalize(e.prediction, dim=-1)
    target = F.normalize(e.target, dim=-1)
    others = (target.sum(0) - target) / (len(target) - 1)
    return (prediction * others).sum(-1)


class BYOL(WithTeacher):
    """Without negatives: the predictor and the teacher's moving average prevent collapse.

    z: the student's projections; target: the teacher's.

    momentum: of the teacher at the start; None is the paper's 0.996, in `pretrain` less for runs of fewer than 2,000
        steps. It rises to 1 as a cosine.
    hidden: width of projector and predictor; None takes twice the backbone's (4096 for a ResNet-50, as published).
    dim: width of z.
    view_by_view: True: one pass for each view, whose batch norms see it alone, as in the authors' code; False: one for
        all views, as in all numbers of this package.
    """

    views = BYOL_VIEWS

    def __init__(
        self,
        backbone: nn.Module,
        *,
        momentum: Share | None = None,
        hidden: Width | None = None,
        dim: Width = 256,
        view_by_view: bool = False,
    ) -> None:
        super().__init__(backbone)
        self.view_by_view = view_by_view
        self.dim = dim
        hidden = hidden or 2 * backbone.width
        self.projector = mlp(backbone.width, hidden, dim)
        self.predictor = mlp(dim, hidden, dim)
        self.copy_teacher(MOMENTUM if momentum is None else momentum)

    def align(self, e: Predicted) -> Tensor:
        """Sum over the views of ||prediction - target of another view||^2, both of length 1, mean over images.

        For two views 4 - 2 cos - 2 cos, the symmetric loss of the paper's eq. 2; more views: mean over the others.
        """
        return (2 - 2 * cosine_with_others(e)).mean(1).sum()
