"""LMCL: SimCLR whose distances are either small or large, with a margin between (Chen et al., ICML 2021)."""

from torch import Tensor, nn

from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.layers.similarities import total_of_blocks
from sslkit.objectives.simclr import SimCLR, own_among_all
from sslkit.options.ranges import Share, Temperature, Weight, Width
from sslkit.runtime.distributed import sum_over_ranks


class LMCL(SimCLR):
    """SimCLR, and `constrain` penalises every distance between the thresholds: the distance polarization regulariser.

    Large-margin contrastive learning with distance polarization regularizer, Proceedings of Machine Learning Research
    139, pages 1673 to 1683: the objective is its eq. 9. A pair in the margin is moved to the nearer side: similar
    images are no longer pushed away as far as others.

    The paper's text was not at hand, and no public code was found. The regulariser, from memory and unchecked, is
    || min((D - near)(D - far), 0) ||_1 over the matrix D of distances (1 - cos) / 2, from 0 to 1. Read so: D holds the
    pairs of all views of the batch, also those of one image; the norm is divided by the number of pairs, so that the
    weight does not depend on the batch. Weight and thresholds are ours, not the paper's: unrelated embeddings have a
    distance of 1/2.

    weight: of the regulariser (lambda of the paper).
    near: distance below which two images count as similar (delta+ of the paper).
    far: distance above which they count as different (delta- of the paper).
    As in SimCLR: temperature, hidden, dim.
    Raises UserError unless near is below far.
    """

    def __init__(
        self,
        backbone: nn.Module,
        *,
        weight: Weight = 1.0,
        near: Share = 0.2,
        far: Share = 0.5,
        temperature: Temperature = 0.2,
        hidden: Width | None = None,
        dim: Width = 128,
    ) -> None:
        super().__init__(backbone, temperature=temperature, hidden=hidden, dim=dim)
        if not near < far:
            raise UserError(f"lmcl: near={near} must be below far={far}")
        self.weight, self.near, self.far = weight, near, far

    def constrain(self, e: Embeddings) -> Tensor:
        """SimCLR's log-sum-exp plus weight times the polarization of all pairs of views, their mean."""
        rows, itself, z = own_among_all(e)

        def inside(rows: Tensor, itself: Tensor) -> Tensor:
            distance = (1 - rows @ z.T) / 2
            depth = (distance - self.near) * (self.far - distance)
            return depth.scatter_(1, itself[:, None], 0).clamp(min=0).sum()

        total = sum_over_ranks(total_of_blocks(inside, len(z), rows, itself))
        return super().constrain(e) + self.weight * total / (len(z) * (len(z) - 1))
