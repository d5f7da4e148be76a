"""Histograms of oriented gradients, batched (Dalal & Triggs, CVPR 2005)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

VERSION = 1  # part of every cache key: increase it when the features change


def hog(gray: Tensor, *, cells: int = 8, orientations: int = 9, clip: float = 0.2) -> Tensor:
    """(N, S, S) gray images -> (N, (cells - 1)^2 * 4 * orientations); S is a multiple of `cells`.

    Central differences, zero at the border; unsigned orientations over pi, each pixel voting with its magnitude for
    the two nearest bins; the mean vote of each of cells x cells cells; blocks of 2 x 2 cells, stride 1, each
    l2-normalised, clipped at `clip` and normalised again.
    """
    dy, dx = torch.zeros_like(gray), torch.zeros_like(gray)
    dy[:, 1:-1] = gray[:, 2:] - gray[:, :-2]
    dx[:, :, 1:-1] = gray[:, :, 2:] - gray[:, :, :-2]
    votes = _votes(torch.hypot(dy, dx), torch.atan2(dy, dx), orientations)
    histogram = F.avg_pool2d(votes, gray.shape[-1] // cells)  # (N, orientations, cells, cells)
    blocks = F.unfold(histogram, 2).mT  # (N, blocks, orientations * 4)
    blocks = _normalise(_normalise(blocks).clamp(max=clip))
    return blocks.flatten(1)


def _votes(magnitude: Tensor, angle: Tensor, orientations: int) -> Tensor:
    """(N, S, S) each -> (N, orientations, S, S); bin b is centred on (b + 1/2) pi / orientations."""
    place = angle.remainder(math.pi) * (orientations / math.pi) - 0.5
    lower = place.floor()
    upper_share = place - lower
    votes = magnitude.new_zeros(orientations, *magnitude.shape)
    lower = lower.long().remainder(orientations)[None]
    votes.scatter_add_(0, lower, (magnitude * (1 - upper_share))[None])
    votes.scatter_add_(0, (lower + 1).remainder(orientations), (magnitude * upper_share)[None])
    return votes.movedim(0, 1)


def _normalise(blocks: Tensor) -> Tensor:
    return blocks / (blocks.square().sum(-1, keepdim=True) + 1e-10).sqrt()
