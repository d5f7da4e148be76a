"""MoCo v3: contrast with a slow teacher's keys of the batch, ViT or ResNet (Chen et al. 2021, arXiv 2104.02057)."""

import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import BYOL
from sslkit.embeddings import Predicted, mean_over_ranks, own_rows
from sslkit.errors import UserError
from sslkit.layers import masked_vit
from sslkit.layers.heads import mlp
from sslkit.layers.similarities import log_sum_exp
from sslkit.objectives.base import WithTeacher, check_above_zero
from sslkit.options.ranges import Share, Temperature, Width


class MoCoV3(WithTeacher):
    """align + constrain is the paper's algorithm 1: 2 T cross-entropy over the keys of all ranks, both directions.

    z: the student's projections; e.prediction: the queries; target: the teacher's projections, the keys.
    The patch projection of a ViT is not trained, for stability as in the paper (section 4.2).

    temperature: divides every cosine (published: 0.2 for ViTs; the authors' ResNet-50 runs use 1).
    momentum: of the teacher at the start; it rises to 1 as a cosine.
    hidden: width of projector and predictor; None is twice the backbone's for a ResNet and 16/3 of it for a ViT:
        the published 4096 for a ResNet-50 and for a ViT-Base.
    dim: width of z.
    position: of a ViT: sincos writes the paper's fixed embedding into the network; learned trains the network's own,
        for networks with pretrained weights. Rotary positions (DINOv3) are kept in both.
    """

    views = BYOL
    most_views = 2
    families = ("vit", "resnet")
    continued = masked_vit.OWN_POSITIONS

    def __init__(
        self,
        backbone: nn.Module,
        *,
        temperature: Temperature = 0.2,
        momentum: Share = 0.99,
        hidden: Width | None = None,
        dim: Width = 256,
        position: str = "sincos",
    ) -> None:
        super().__init__(backbone)
        check_above_zero(temperature=temperature)
        self.temperature = temperature
        self.dim = dim
        hidden = hidden or (16 * backbone.width // 3 if backbone.is_vit else 2 * backbone.width)
        self.projector = mlp(backbone.width, hidden, dim, layers=3 if backbone.is_vit else 2, last_norm=True)
        self.predictor = mlp(dim, hidden, dim, last_norm=True)
        if backbone.is_vit:
            if position == "sincos" and not masked_vit.has_positions(backbone.net):
                raise UserError("this ViT has no position embedding: set position=learned")
            masked_vit.set_positions(backbone.net, position)
            backbone.net.patch_embed.requires_grad_(False)
        self.copy_teacher(momentum)

    def align(self, e: Predicted) -> Tensor:
        """-2 cos of each view's query with the other view's key, mean over images, both directions summed."""
        return -2 * F.cosine_similarity(e.prediction, e.target.flip(0), dim=-1).mean(1).sum()

    def constrain(self, e: Predicted) -> Tensor:
        """2 T times the mean log-sum-exp of a query's cosines with the other view's keys; both directions summed."""
        query, key = F.normalize(own_rows(e.prediction), dim=-1), F.normalize(e.target.flip(0), dim=-1)
        spread = log_sum_exp(query / self.temperature, key)  # (2, n), of this rank's images
        return 2 * self.temperature * mean_over_ranks(spread.mean(1).sum())
