"""Concept variation: how often images that are close by their features have other labels."""

import math

import torch
from torch import Tensor

from evaluation.transferability.base import BLOCK, Sample, Score
from sslkit.options.ranges import Positive

NEVER_FURTHER = 1e-9  # instead of the longest distance less a longer one, as in pymfe


def unit_range(x: Tensor) -> Tensor:
    """Return x (N, D) with each column scaled to 0 to 1; constant columns are 0."""
    low, high = x.amin(0), x.amax(0)
    return (x - low) / torch.where(high > low, high - low, 1.0)


def weights(distances: Tensor, longest: float, alpha: float) -> Tensor:
    """Return 2^(-alpha d / (longest - d)): 1 for equal images, 0 at the longest distance."""
    return torch.exp2(-alpha * distances / (longest - distances).clamp_min(NEVER_FURTHER))


def variation(x: Tensor, y: Tensor, alpha: float) -> Tensor:
    """Return (N,) the weighted share of the other images that have another label than each one.

    x: (N, D) from 0 to 1. y: (N,) int64. If all others are at the longest distance, their plain share.
    """
    n, longest = len(x), math.sqrt(x.shape[1])
    total, other = (torch.zeros(n, dtype=x.dtype, device=x.device) for _ in range(2))
    step = max(BLOCK // n, 1)
    for start in range(0, n, step):  # weights are symmetric: each pair once
        stop = min(start + step, n)
        pairs = weights(torch.cdist(x[start:stop], x[start:]), longest, alpha)
        pairs[:, : stop - start].tril_()
        pairs[:, : stop - start].fill_diagonal_(0)
        differ = pairs * (y[start:stop, None] != y[start:])
        for sums, block in ((total, pairs), (other, differ)):
            sums[start:stop] += block.sum(1)
            sums[start:] += block.sum(0)
    counts = torch.bincount(y)[y]
    return torch.where(total > 0, other / total.clamp_min(1e-300), (n - counts) / (n - 1))


def score(sample: Sample, *, alpha: Positive = 2.0) -> Score:
    """Less the mean over i of sum_j W_ij [y_j != y_i] / sum_j W_ij, with W_ij = 2^(-alpha d_ij / (sqrt(D) - d_ij)).

    d: Euclidean distances of the features, each scaled to 0 to 1 over the images. alpha: the larger, the more the
        nearest count.
    Range: -1 to 0. Higher is better. Cost: O(N^2 D).
    Source: Vilalta & Drissi, A Perspective View and Survey of Meta-Learning, 2002, with alpha as in pymfe; proposed to
    rank models by Singh, Hess & Vanschoren, arXiv 2502.06925, whose text could not be read beyond its abstract.
    Not for: wide features: their distances are all alike, and so are the weights.
    """
    terms = -variation(unit_range(sample.features), sample.labels, alpha)
    return Score(float(terms.mean()), {}, terms=terms)
