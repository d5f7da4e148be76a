"""ReSA: similarities of the views' embeddings follow an assignment of their features (Weng 2025, arXiv 2501.18452).

The assignment is that of the authors' code before 2025-03-09; since then theirs normalises the rows alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import BYOL, WEAK, ViewRecipe
from sslkit.embeddings import Predicted, along
from sslkit.layers import teacher
from sslkit.layers.heads import mlp
from sslkit.layers.prototypes import sinkhorn
from sslkit.objectives.base import WithTeacher, check_above_zero
from sslkit.options.ranges import Rows, Share, Temperature, Width

_STRONG = replace(BYOL.views[0], scale=(0.2, 1.0), blur=0.5, solarize=0.2)


@dataclass
class Assigned(Predicted):
    """features, teacher_features: (N, F) of the first view by the student and by the teacher, fp32, no gradient."""

    features: Tensor | None = along(0, default=None)
    teacher_features: Tensor | None = along(0, default=None)


def assignment(features: Tensor, teacher_features: Tensor, epsilon: float, iterations: int) -> Tensor:
    """(N, N) shares of each image among the images, the rows' sums 1: Sinkhorn of the cosines over epsilon."""
    return sinkhorn(F.normalize(features, dim=-1) @ F.normalize(teacher_features, dim=-1).T, epsilon, iterations)


class ReSA(WithTeacher):
    """Without a prior: which images belong together is read from the network's own features, not its projections.

    A (N, N) is Sinkhorn's assignment of the first view's features, the student's in the rows and the teacher's in the
    columns, over the images of all ranks. S holds the cosines of one view's predictions with the teacher's projections
    of another one, over the temperature. The loss is the mean of the cross-entropies of the rows of S with those of A,
    and of the columns with those of A, over the ordered pairs of views. align is the part with A, minus the assigned
    mean of S; constrain the log-sum-exp of the rows and of the columns, the latter times the sum of A's column, which
    a few iterations leave near 1.

    The equations are those of the authors' public code; the paper's text was not at hand. As there, the first view is
    weak (crop and flip) and its features alone give A; a network with batch norms sees one view at a time; a ViT's
    heads have GELU in place of batch norm and ReLU, and begin as Glorot's. All ranks hold A and S: memory grows with
    N^2.

    z: the student's projections; target: the teacher's.

    temperature: divides the cosines of S.
    epsilon: divides the cosines of the features.
    iterations: of Sinkhorn.
    momentum: of the teacher at the start; it rises to 1 as a cosine.
    hidden: width of the three-layer projector and of the predictor; None takes 2048 for a ViT, as published, else the
        backbone's (2048 for a ResNet-50).
    dim: width of z; None takes 512 for a ViT, as published, else a quarter of the backbone's (512 for a ResNet-50).
    """

    families = ("resnet", "vit")
    views = ViewRecipe((WEAK, _STRONG))
    view_by_view = True

    def __init__(
        self,
        backbone: nn.Module,
        *,
        temperature: Temperature = 0.4,
        epsilon: Temperature = 0.05,
        iterations: Rows = 3,
        momentum: Share = 0.996,
        hidden: Width | None = None,
        dim: Width | None = None,
    ) -> None:
        super().__init__(backbone)
        check_above_zero(temperature=temperature, epsilon=epsilon)
        self.temperature, self.epsilon, self.iterations = temperature, epsilon, iterations
        vit = backbone.is_vit
        hidden = hidden or (2048 if vit else backbone.width)
        self.dim = dim or (512 if vit else max(backbone.width // 4, 1))
        if vit:
            self.projector = mlp(backbone.width, hidden, self.dim, layers=3, norm=False, activation=nn.GELU)
            layers = mlp(self.dim, hidden, self.dim, norm=False, activation=nn.GELU)
            self.predictor = nn.Sequential(nn.LayerNorm(self.dim, eps=1e-6), *layers)
            for head in (self.projector, self.predictor):
                head.apply(_as_glorot)
        else:
            self.projector = mlp(backbone.width, hidden, self.dim, layers=3, last_norm=True)
            self.predictor = mlp(self.dim, hidden, self.dim)
        self.copy_teacher(momentum)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Assigned:
        """One forward of the student and one of the teacher for each view; both features of the first one are kept."""
        h, z, prediction = self.pass_views(views, self.backbone, self.projector, self.predictor)
        with teacher.inference(self.teacher):
            slow, target = self.pass_views(views, *self.teacher)
        features = {"features": h[0].detach(), "teacher_features": slow[0]}
        return Assigned(z=z, h=h, target=target, index=index, prediction=prediction, **features)

    def align(self, e: Assigned) -> Tensor:
        """Minus the sum of A S over the images' number, mean over the ordered pairs of views."""
        a = self._assignment(e)
        return -torch.stack([(a * s).sum() / len(a) for s in self._similarities(e)]).mean()

    def constrain(self, e: Assigned) -> Tensor:
        """Half the log-sum-exp of the rows and half that of the columns, mean over images and ordered pairs."""
        shares = self._assignment(e).sum(0)
        each = [s.logsumexp(1) + shares * s.logsumexp(0) for s in self._similarities(e)]
        return torch.stack(each).mean() / 2

    def _assignment(self, e: Assigned) -> Tensor:
        return assignment(e.features, e.teacher_features, self.epsilon, self.iterations)

    def _similarities(self, e: Assigned) -> Iterator[Tensor]:
        """(N, N) of each ordered pair of views: predictions in the rows, the teacher's projections in the columns."""
        predictions, targets = (F.normalize(x, dim=-1) for x in (e.prediction, e.target))
        for i, prediction in enumerate(predictions / self.temperature):
            yield from (prediction @ target.T for j, target in enumerate(targets) if j != i)


def _as_glorot(layer: nn.Module) -> None:
    if isinstance(layer, nn.Linear):
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
