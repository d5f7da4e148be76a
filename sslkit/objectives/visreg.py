"""VISReg: predict the centre of the full-size views, embeddings centred, scaled and shaped (Wu 2026, arXiv 2606.02572).

The loss is lightly's, which follows the paper's algorithm 1; the paper's text was not at hand.
"""

from torch import Tensor, nn

from sslkit.layers import visreg
from sslkit.layers.prototypes import Crops
from sslkit.layers.sigreg import draw_slices
from sslkit.objectives.lejepa import LeJEPA
from sslkit.options.ranges import Rows, Share, Weight, Width


class VISReg(LeJEPA):
    """LeJEPA with another regulariser: 1 - weight times its distance to the centre, weight times centre, scale, shape.

    Each crop of the images of all ranks is a sample of its own (in the paper each crop on each rank), and the terms are
    the mean over crops. Unlike SIGReg's, the gradient of the scale does not vanish where embeddings collapse. Crops and
    projector are LeJEPA's: the paper's were not at hand.

    weight: lambda of the paper, which advises 0.9 for large data and 0.6 for small.
    slices: number of random directions of a step (published: 4096).
    scale, shape, centre: weights of the three terms, equal in the paper.
    hidden: width of the three-layer projector. dim: width of z.
    """

    def __init__(
        self,
        backbone: nn.Module,
        *,
        weight: Share = 0.9,
        slices: Rows = 4096,
        scale: Weight = 1.0,
        shape: Weight = 1.0,
        centre: Weight = 1.0,
        hidden: Width = 2048,
        dim: Width = 64,
    ) -> None:
        super().__init__(backbone, weight=weight, slices=slices, hidden=hidden, dim=dim)
        self.scale, self.shape, self.centre = scale, shape, centre

    def constrain(self, e: Crops) -> Tensor:
        """The weighted terms within each crop of the images, the mean over crops, times weight."""
        z = e.projections()
        directions = draw_slices(z.shape[-1], self.slices, self.step, like=z)
        terms = self.scale * visreg.scale(z) + self.shape * visreg.shape(z, directions)
        return self.weight * (terms + self.centre * visreg.centre(z))
