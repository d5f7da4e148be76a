"""NNCLR: contrast with the nearest neighbour of the other view (Dwibedi et al. 2021, arXiv 2104.14548)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import SIMCLR
from sslkit.embeddings import Predicted, mean_over_ranks, own_rows, stack
from sslkit.layers.heads import mlp
from sslkit.layers.queue import Queue
from sslkit.layers.similarities import log_sum_exp, most_similar
from sslkit.objectives.base import Objective, check_above_zero
from sslkit.options.ranges import Rows, Temperature, Width


class NNCLR(Objective):
    """align + constrain is eq. 3 in both directions: the neighbour of one view finds the other view's prediction.

    The neighbour, e.target, is the row of the queue with the largest cosine to z. The queue holds the first views of
    older batches and starts as random unit vectors.
    Published views: SimCLR's. The paper's ablation with both directions of the softmax is left out.

    queue_size: number of older embeddings (published: 98304, three quarters of which an epoch of ImageNet overwrites
        ten times); use at most the size of the data set, of which a longer queue holds older copies.
    temperature: divides every cosine.
    hidden: width of the three-layer projector; None takes the backbone's (2048 for a ResNet-50, as published).
    predictor: hidden width of the predictor; None takes twice the projector's (published: 4096).
    dim: width of z.
    """

    views = SIMCLR
    most_views = 2

    def __init__(
        self,
        backbone: nn.Module,
        *,
        queue_size: Rows = 98_304,
        temperature: Temperature = 0.1,
        hidden: Width | None = None,
        predictor: Width | None = None,
        dim: Width = 256,
    ) -> None:
        super().__init__(backbone)
        check_above_zero(temperature=temperature)
        self.temperature = temperature
        self.dim = dim
        hidden = hidden or backbone.width
        self.projector = mlp(backbone.width, hidden, dim, layers=3, last_norm=True)
        self.predictor = mlp(dim, predictor or 2 * hidden, dim)
        self.queue = Queue(queue_size, dim)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Predicted:
        """Embed both views and look up the nearest row of the queue for each."""
        h = self.backbone(torch.cat(list(views)))
        z = self.projector(h)
        h, z, prediction = stack(len(views), h, z, self.predictor(z))
        return Predicted(z=z, h=h, target=self.nearest(z), index=index, prediction=prediction)

    @torch.no_grad()
    def nearest(self, z: Tensor) -> Tensor:
        """(V, N, D) -> the row of the queue with the largest cosine to each."""
        rows = self.queue.rows.to(z.dtype)
        return rows[most_similar(F.normalize(z, dim=-1).flatten(0, 1), rows)].view(z.shape)

    def align(self, e: Predicted) -> Tensor:
        """Minus the mean cosine of a view's neighbour and the other view's prediction, over the temperature."""
        return -(F.cosine_similarity(e.target, e.prediction.flip(0), dim=-1) / self.temperature).mean()

    def constrain(self, e: Predicted) -> Tensor:
        """Mean log-sum-exp of a neighbour's cosines with the predictions of all images of the other view."""
        others = F.normalize(e.prediction.flip(0), dim=-1) / self.temperature
        return mean_over_ranks(log_sum_exp(F.normalize(own_rows(e.target), dim=-1), others).mean())

    def observe(self, e: Predicted) -> None:
        """Push the first view's embeddings into the queue."""
        self.queue.push(F.normalize(e.z[0], dim=-1))
