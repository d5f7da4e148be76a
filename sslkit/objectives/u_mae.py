"""U-MAE: MAE with a uniformity term against collapsed dimensions (Zhang et al. 2022, arXiv 2210.08344)."""

import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.embeddings import Embeddings
from sslkit.objectives.mae import MAE
from sslkit.options.ranges import Depth, Share, Weight, Width


class UMAE(MAE):
    """MAE with `constrain`: the mean squared cosine of the pooled features of different images.

    uniformity: weight of the term (lambda of the paper: 0.01).
    As in MAE: mask_ratio, sets, decoder_dim, decoder_depth, normalize_pixels, position.
    """

    def __init__(
        self,
        backbone: nn.Module,
        *,
        uniformity: Weight = 0.01,
        mask_ratio: Share = 0.75,
        sets: Depth | None = None,
        decoder_dim: Width | None = None,
        decoder_depth: Depth | None = None,
        normalize_pixels: bool = True,
        position: str = "sincos",
    ) -> None:
        super().__init__(
            backbone,
            mask_ratio=mask_ratio,
            sets=sets,
            decoder_dim=decoder_dim,
            decoder_depth=decoder_depth,
            normalize_pixels=normalize_pixels,
            position=position,
        )
        self.uniformity = uniformity

    def constrain(self, e: Embeddings) -> Tensor:
        """uniformity * mean over i != j of (z_i . z_j)^2, z of length 1, for images of one view; mean over views."""
        z = F.normalize(e.z, dim=-1)  # (V, N, D)
        v, n, _ = z.shape
        # sum over i, j of (z_i . z_j)^2 = |Z^T Z|^2 = |Z Z^T|^2: use the smaller product
        gram = z.mT @ z if z.shape[2] < n else z @ z.mT
        others = gram.square().sum() - z.square().sum(-1).square().sum()
        return self.uniformity * others / (v * n * (n - 1))
