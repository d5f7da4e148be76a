"""INT: how far apart images of different classes are by their features."""

import torch
from torch import Tensor

from evaluation.transferability.base import BLOCK, Sample, Score
from sslkit.errors import UserError


def class_sums(x: Tensor, y: Tensor, classes: int) -> Tensor:
    """Return (C, C) sums of Euclidean distances over the pairs of images i < j, at [y_i, y_j]. x: (N, D). y: (N,)."""
    sums = torch.zeros(classes, classes, dtype=x.dtype, device=x.device)
    one_hot = torch.nn.functional.one_hot(y, classes).to(x)
    x = x - x.mean(0)  # a large offset would cost digits: distances are computed from inner products
    step = max(BLOCK // len(x), 1)
    for start in range(0, len(x), step):
        stop = min(start + step, len(x))
        distances = torch.cdist(x[start:stop], x[start:])
        distances[:, : stop - start].triu_(1)
        sums += one_hot[start:stop].T @ distances @ one_hot[start:]
    return sums


def score(sample: Sample, *, normalize: bool = False) -> Score:
    """2 / (C (C - 1)) sum_{a < b} 1 / (n_a n_b) sum_{i in a, j in b} |z_i - z_j|: the mean over pairs of classes.

    normalize: divide by the mean distance of images of one class, so that the score does not grow with the features.
    Range: at least 0. Higher is better. Cost: O(N^2 D).
    Source: Bezdek & Pal, Some New Indexes of Cluster Validity, IEEE Trans. SMC-B 1998, as INT of pymfe; INT is proposed
    to rank models by Singh, Hess & Vanschoren, arXiv 2502.06925, whose text could not be read beyond its abstract.
    Not for: comparing models of different feature scale or dimension without `normalize`.
    """
    y, c = sample.labels, sample.n_classes
    sums = class_sums(sample.features, y, c)
    counts = torch.bincount(y, minlength=c).to(sums)
    between = float(((sums + sums.T) / counts.outer(counts)).fill_diagonal_(0).sum() / (c * (c - 1)))
    if not normalize:
        return Score(between)
    pairs = float((counts * (counts - 1) / 2).sum())
    within = float(sums.trace()) / pairs if pairs else 0.0
    if not within > 0:
        raise UserError("interclass_distance with normalize needs classes of at least 2 different images")
    return Score(between / within, {"between": between, "within": within})
