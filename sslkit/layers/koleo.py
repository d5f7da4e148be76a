"""KoLeo: the log distance to the nearest other embedding (Sablayrolles et al. 2019, arXiv 1806.03198, eq. 5)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.layers.similarities import most_similar
from sslkit.runtime import distributed


def nearest_distance(z: Tensor) -> Tensor:
    """(V, N): the distance of each z (V, N, D), of length 1, to the nearest other one of its view.

    z: of all ranks, rank by rank; the distances are in the order of the batch. Of equally near ones the first of the
    batch counts and gets the gradient: equal embeddings may come from images that differ.
    """
    z = F.normalize(distributed.in_batch_order(z, 1), dim=-1)
    itself = torch.arange(z.shape[1], device=z.device)
    nearest = torch.stack([most_similar(view, view, without=itself) for view in z])
    return (z - z.gather(1, nearest[..., None].expand_as(z))).norm(dim=-1)


def koleo(distance: Tensor, eps: float = 1e-8) -> Tensor:
    """Minus the mean log of the distances. eps: added, so that duplicates give a finite value."""
    return -(distance + eps).log().mean()
