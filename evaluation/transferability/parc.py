"""PARC: rank correlation of the images' feature distances with their label distances.

Label distances have many ties. The published code correlates one-hot rows in floating point, whose rounding (1e-16)
breaks these ties and changes the score; here ties stay ties.
"""

import math

import numpy as np
import torch
from torch import Tensor

from evaluation.results.choice import first_largest
from evaluation.transferability._scatter import EPS, mean_rounding
from evaluation.transferability.base import BLOCK, Sample, Score
from sslkit.errors import UserError
from sslkit.numerics.ties import average_ranks
from sslkit.options.ranges import Several

TAKES_NUMBERS = True
DIGITS = 12  # of a correlation; smaller differences are rounding, and count as ties


def standardise(x: Tensor) -> Tensor:
    """Scale columns to mean 0 and standard deviation 1 (ddof 0), constant ones to 0."""
    mean = x.mean(0)
    centred = x - mean
    deviation = centred.square().mean(0).sqrt()
    return torch.where(deviation > mean_rounding(mean, len(x)), centred / deviation, 0)


def unit_profiles(x: Tensor) -> Tensor:
    """Centre rows and scale them to length 1, so that inner products are correlations. Constant rows become 0."""
    centred = x - x.mean(1, keepdim=True)
    length = centred.norm(dim=1, keepdim=True)
    return torch.where(length > 1e-12 * x.norm(dim=1).max(), centred / length, 0)


def correlations(profiles: np.ndarray) -> np.ndarray:
    """Return (N (N - 1) / 2,) correlations of rows i < j, row after row. profiles: (N, d), see `unit_profiles`."""
    n = len(profiles)
    pairs = np.empty(n * (n - 1) // 2)
    step, at = max(BLOCK // n, 1), 0
    for start in range(0, n, step):
        block = profiles[start : start + step] @ profiles[start:].T
        for row in range(len(block)):
            length = n - 1 - start - row
            pairs[at : at + length] = block[row, row + 1 :]
            at += length
    return np.round(pairs, DIGITS, out=pairs)


def same_class(pairs: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Select the within-class pairs from `correlations` of rows sorted by class. counts: (C,)."""
    ends = np.repeat(np.cumsum(counts), counts)
    n = len(ends)
    starts = np.concatenate([[0], np.cumsum(np.arange(n - 1, 0, -1))])  # of each row's pairs
    return np.concatenate([pairs[starts[i] : starts[i] + ends[i] - i - 1] for i in range(n)])


def spearman_to_classes(pairs: np.ndarray, same: np.ndarray) -> float:
    """Return Spearman's correlation of `pairs` with the within-class indicator; sorts both in place.

    Pearson of the ranks r and the indicator b: (mean r of b = 1 - mean r of b = 0) sqrt(q (1 - q)) / sd(r), where
    q = mean b. So only the ranks of the few within-class pairs are needed: their positions in the sorted pairs.
    """
    m, k = len(pairs), len(same)
    pairs.sort()
    same.sort()
    spread = rank_variance(pairs)
    if k in (0, m) or spread == 0:
        return 0.0
    places = np.searchsorted(pairs, same, "left").sum() + np.searchsorted(pairs, same, "right").sum()
    mean_same = (places / k + 1) / 2  # ties share the mean of their ranks
    mean_other = (m * (m + 1) / 2 - k * mean_same) / (m - k)
    q = k / m
    return float((mean_same - mean_other) * math.sqrt(q * (1 - q) / spread))


def rank_variance(ordered: np.ndarray) -> float:
    """Return the variance (ddof 0) of the ranks of sorted values, ties at their mean rank."""
    m = len(ordered)
    tied = np.flatnonzero(ordered[1:] == ordered[:-1])
    runs = np.diff(np.flatnonzero(np.concatenate([[True], np.diff(tied) > 1, [True]]))) + 1.0 if len(tied) else tied
    return float(((m * m - 1) - (runs**3 - runs).sum() / m) / 12)


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Return Spearman's correlation, ties at their mean rank; 0 if either is constant."""
    ranks = [average_ranks(values) - (len(values) + 1) / 2 for values in (first, second)]
    size = math.sqrt(float(ranks[0] @ ranks[0]) * float(ranks[1] @ ranks[1]))
    return float(ranks[0] @ ranks[1]) / size if size else 0.0


def parc(x: Tensor, y: Tensor) -> float:
    """Return 100 Spearman of the features' distances 1 - corr(x_i, x_j) and the labels' distances, over i < j.

    x: (N, d), after PCA. y: (N,) int64 classes, whose distance is 0 or 1, or (N, K) several labels an image,
    whose distance is 1 - corr(y_i, y_j).
    """
    profiles = unit_profiles(standardise(x.double()))
    if y.ndim == 2:
        alike = correlations(unit_profiles(y.double()).cpu().numpy())
        return 100 * spearman(correlations(profiles.cpu().numpy()), alike)
    order = y.argsort(stable=True)
    pairs = correlations(profiles[order].cpu().numpy())
    return 100 * spearman_to_classes(pairs, same_class(pairs, torch.bincount(y).cpu().numpy()))


def score(sample: Sample, *, n_dims: Several | None = 32, max_images: Several | None = 8000) -> Score:
    """100 Spearman(1 - corr(x_i, x_j), 1 - corr(Y_i, Y_j)) over i < j, Y one-hot, of the standardised features.

    n_dims: number of principal axes of the features, at most their rank; None: the original features.
    max_images: larger samples are subsampled, stratified, from the seed; None: all, with 8 N^2 bytes for pairs.
    Range: -100 to 100. Higher is better. Cost: O(N^2 log N), beside the shared O(N D^2 + D^3); O(N^2 D) without axes.
    Several labels per image, as numbers (N, K), are allowed.
    Source: Bolya et al., Scalable Diverse Model Selection for Accessible Transfer Learning, NeurIPS 2021, eq. 3.
    Not for: comparing scores over tasks: with many classes within-class pairs are few and the score is small.
    """
    y = sample.targets if sample.y is None else sample.y
    if y.ndim == 2 and y.shape[1] < 2:
        raise UserError("parc takes classes, or at least two numbers per image, not one number (see logme)")
    rows = drawn_rows(sample, max_images)
    x = sample.take(rows).features if n_dims is None else principal_features(sample, n_dims)[rows]
    value = parc(x, y[rows])
    warnings = ()
    if not value and x.shape[1] <= 1:
        warnings = ("features of fewer than two dimensions have no profiles to correlate",)
    return Score(value, {"images": len(rows), "dims": x.shape[1]}, warnings)


def principal_features(sample: Sample, dims: int) -> Tensor:
    """Return features (N, at most dims) on the principal axes. The sign of each axis makes its largest coordinate
    positive, that of the first row among those equal up to rounding.

    Profiles are centred over the axes, so that the signs matter; the published code uses the solver's signs, which
    changes the score by up to half a point.
    """
    x = sample.principal_coordinates(min(dims, sample.compact.scatter.rank))
    size = x.abs()
    first = first_largest(size.T, max(sample.x.shape) * EPS * size.max() if x.numel() else 0.0)
    return x * x.gather(0, first[None]).sign()


def drawn_rows(sample: Sample, most: int | None) -> Tensor:
    """Return row indices (n,): all, or `most` of them, stratified by class."""
    n = len(sample)
    if most is None or n <= most:
        return torch.arange(n, device=sample.device)
    drawn = torch.randperm(n, generator=sample.generator("parc"))
    if sample.y is not None:
        drawn = drawn[sample.y.cpu()[drawn].argsort(stable=True)]
    return drawn[(torch.arange(most) * n) // most].sort().values.to(sample.device)
