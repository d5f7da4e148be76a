"""LeJEPA: predict the centre of the full-size views, the embeddings held normal, without a teacher or stop-gradient.

Balestriero & LeCun 2025, arXiv 2511.08544.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.embeddings import own_rows
from sslkit.errors import UserError
from sslkit.layers.heads import mlp
from sslkit.layers.prototypes import Crops, embed_crops
from sslkit.layers.sigreg import draw_slices, sigreg
from sslkit.objectives.base import Objective
from sslkit.options.ranges import Knots, Rows, Share, Temperature, Width

_VIEW = View(scale=(0.3, 1.0), brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1, solarize=0.2)


class LeJEPA(Objective):
    """(1 - weight) times the squared distance to the centre of the full-size views plus weight times SIGReg.

    z: projections of the full-size views; e.local holds those of the local crops, which are part of both terms.

    weight: lambda of the paper, its one parameter: 0.01 to 0.1 in its experiments.
    slices: number of random directions of a step. knots, t_max: points of SIGReg's integral, see `layers.sigreg`.
    hidden: width of the three-layer projector (published: 2048). dim: width of z; the paper takes small ones.
    Raises UserError for fewer than two knots.
    """

    families = ("resnet", "vit")
    views = ViewRecipe((_VIEW, _VIEW), local=replace(_VIEW, scale=(0.05, 0.3), size=98), n_local=6)

    def __init__(
        self,
        backbone: nn.Module,
        *,
        weight: Share = 0.05,
        slices: Rows = 1024,
        knots: Knots = 9,
        t_max: Temperature = 5.0,
        hidden: Width = 2048,
        dim: Width = 64,
    ) -> None:
        super().__init__(backbone)
        if knots < 2:
            raise UserError(f"lejepa: knots must be at least 2, the ends of the integral, got {knots}")
        self.weight, self.slices, self.knots, self.t_max = weight, slices, knots, t_max
        self.dim = dim
        self.step = 0
        self.projector = mlp(backbone.width, hidden, dim, layers=3)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Crops:
        """Embed all crops, one forward per resolution."""
        return embed_crops(self.backbone, self.projector, views, self.full_size(views), index)

    def align(self, e: Crops) -> Tensor:
        """Mean squared distance of every crop to the mean of the image's full-size views (eq. 6), times 1 - weight."""
        return (1 - self.weight) * (e.z.mean(0) - e.projections()).square().mean()

    def constrain(self, e: Crops) -> Tensor:
        """SIGReg within each crop of the images, the mean over crops, times weight."""
        z = own_rows(e.projections())
        directions = draw_slices(z.shape[-1], self.slices, self.step, like=z)
        return self.weight * sigreg(z, directions, knots=self.knots, t_max=self.t_max)

    def observe(self, e: Crops) -> None:
        """Take other directions in the next step."""
        self.step += 1

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.step)

    def set_extra_state(self, state: Tensor) -> None:
        self.step = int(state)
