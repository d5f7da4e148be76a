"""The pairs of one rank, and the order of the images of all."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sslkit.runtime import distributed


@dataclass
class RankRows:
    """The pairs of this rank: the rows of z that are its anchors (None is all), and the map from images to rows."""

    anchors: Tensor | None
    images: slice  # images of the anchors among those of the step
    views: int


def of_rank(z: Tensor, index: Tensor, *, as_code: bool) -> tuple[Tensor, Tensor, RankRows]:
    """z (V, N, D) as (V N, D) rows, view by view, their images' index, and the pairs of this rank.

    z, index: of all ranks, rank by rank. The rows are in the order of the batch, in which the first of equally near
    neighbours counts: the same on any number of ranks.
    as_code: only this rank's images, as in the official code.
    """
    views, count, _ = z.shape
    world, rank = distributed.world_size(), distributed.rank()
    own = slice(rank * count // world, (rank + 1) * count // world)
    if world == 1:
        return z.flatten(0, 1), index, RankRows(None, own, views)
    if as_code:
        return z[:, own].flatten(0, 1), index[own], RankRows(None, slice(0, count // world), views)
    anchors = torch.arange(views * count, device=z.device).view(views, count)[:, own].flatten()
    z, index = distributed.in_batch_order(z, 1), distributed.in_batch_order(index)
    return z.flatten(0, 1), index, RankRows(anchors, own, views)
