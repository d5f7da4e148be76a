"""Maximum Entropy Coding: the views' joint coding length is maximal (Liu et al. 2022, arXiv 2210.11464)."""

from dataclasses import replace
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import BYOL, ViewRecipe
from sslkit.embeddings import Predicted
from sslkit.layers.heads import mlp
from sslkit.numerics import schedules
from sslkit.objectives.base import WithTeacher, check_above_zero
from sslkit.objectives.byol import cosine_with_others
from sslkit.options.ranges import Share, Temperature, Width

WARMUP = 8  # times as much distortion in the first step, in the authors' code


def higher_traces(p: Tensor, z: Tensor, scale: float) -> Tensor:
    """tr(C^2)/2 - tr(C^3)/3 + tr(C^4)/4 of C = scale p z^T, which is N x N: (N, D), (N, D) -> ().

    These are the second to fourth terms of -tr log(I + C). z^T p has the same traces and is taken where D < N.
    """
    n, d = p.shape
    c = scale * (p @ z.T if n <= d else z.T @ p)
    square = c @ c
    return (c * c.T).sum() / 2 - (square * c.T).sum() / 3 + (square * square.T).sum() / 4


class MEC(WithTeacher):
    """align + constrain is -log det(I + lambda P Z^T) / (lambda m), its power series cut after four terms.

    P (m, D) has the predictions of one view and Z (m, D) the teacher's projections of another one, rows of length 1,
    of the m images of all ranks; lambda = D / (m epsilon^2), as in eq. 2. Mean over the ordered pairs of views.
    align is the first term of the series: lambda tr(P Z^T) / (lambda m) is the mean cosine of an image's views.
    constrain is the second to the fourth: they hold the powers of P Z^T small, so the spectrum of Z spread. The
    diagonal of P Z^T is in them too, so they are not a function of other images alone.
    The paper's factor mu = (m + D) / 2 is left out and the loss divided by lambda m, as in the authors' code: the scale
    of the loss then depends on neither. Predictor, teacher and schedules are those of the code. It warms epsilon^2 up
    for 10 of 100 epochs, to keep the series convergent; here this is a share of the run. It converges where the norm
    of lambda P Z^T is below 1, which is sure from epsilon^2 = D on. Outside, the predictor can turn P so that the
    fourth term falls without bound while z collapses: a short run needs more distortion.

    z: the student's projections; target: the teacher's.

    distortion: epsilon^2, the squared error of the code; the default is that of the authors' ImageNet command, for
        2048 dimensions.
    warmup: share of the run in which the distortion falls to this value, on a line from eight times as much.
    momentum: of the teacher at the start; it rises to 1 as a cosine.
    hidden: width of the three-layer projector; None takes the backbone's (2048 for a ResNet-50, as published).
    dim: width of z; None takes the backbone's (2048, as published).
    bottleneck: width inside the predictor; None takes a quarter of dim (512, as published).
    view_by_view: one pass for each view, whose batch norms see it alone, as in the authors' code; False: one for all.
    """

    views = ViewRecipe(tuple(replace(view, scale=(0.2, 1.0)) for view in BYOL.views))

    def __init__(
        self,
        backbone: nn.Module,
        *,
        distortion: Temperature = 64.0,
        warmup: Share = 0.1,
        momentum: Share = 0.996,
        hidden: Width | None = None,
        dim: Width | None = None,
        bottleneck: Width | None = None,
        view_by_view: bool = True,
    ) -> None:
        super().__init__(backbone)
        self.view_by_view = view_by_view
        check_above_zero(distortion=distortion)
        self.distortion, self.warmup = distortion, warmup
        self.dim = dim or backbone.width
        self.projector = mlp(backbone.width, hidden or backbone.width, self.dim, layers=3, last_norm=True)
        self.predictor = mlp(self.dim, bottleneck or max(self.dim // 4, 1), self.dim)
        self.copy_teacher(momentum)

    def align(self, e: Predicted) -> Tensor:
        """Minus the mean cosine of a view's prediction with the target of another view of its image."""
        return -cosine_with_others(e).mean()

    def constrain(self, e: Predicted) -> Tensor:
        """The second to fourth terms of the series, mean over the ordered pairs of views."""
        prediction, target = F.normalize(e.prediction, dim=-1), F.normalize(e.target, dim=-1)
        n, d = e.z.shape[1:]
        scale = d / (n * self.distortion_now())
        pairs = permutations(range(len(e.z)), 2)
        traces = [higher_traces(prediction[a], target[b], scale) for a, b in pairs]
        return torch.stack(traces).mean() / (scale * n)

    def distortion_now(self) -> float:
        """The distortion of this step: falls on a line during the warm-up, then stays."""
        if self.progress >= self.warmup:
            return self.distortion
        return schedules.along_line(WARMUP * self.distortion, self.distortion, self.progress / self.warmup)
