"""Regularised H-score: H-score with a shrunk covariance, which does not saturate for D > N."""

import torch
from torch import Tensor

from evaluation.transferability._scatter import EPS, Scatter
from evaluation.transferability.base import Sample, Score


def ledoit_wolf(scatter: Scatter, fourth: float, dim: int) -> tuple[float, float]:
    """Return shrinkage a and mean variance mu of S_a = (1 - a) S + a mu I (Ledoit and Wolf 2004, section 3.3).

    S = total / N. fourth: mean_i ||x_i - m||^4. dim: D; `scatter` may omit constant columns.
    """
    mu = float(scatter.total.trace()) / (scatter.n * dim)
    size = float(scatter.total.square().sum()) / scatter.n**2
    distance = size - dim * mu**2
    if distance <= size * max(scatter.n, dim) * EPS:  # a difference of two sums: S is mu I, shrunk or not
        return 0.0, mu
    return min(max(fourth - size, 0.0) / scatter.n, distance) / distance, mu


def mean_fourth(sample: Sample) -> float:
    """Return mean_i ||x_i - m||^4, in one pass over the rows."""
    mean = sample.moments.mean
    total = torch.zeros((), dtype=torch.float64, device=sample.device)
    for _, x in sample.blocks():
        total += x.sub_(mean).square_().sum(1).square_().sum()
    return float(total) / len(sample)


def h_score_regularized(scatter: Scatter, shrinkage: float, mu: float) -> float:
    """(1 - a) tr(pinv(S_a) cov(g)), g_i = mu_{y_i}, cov(g) with ddof 1 (Ibrahim et al. 2022, eq. 7)."""
    spread = scatter.moments.spread
    shrunk = scatter.total * ((1 - shrinkage) / scatter.n)
    shrunk.diagonal().add_(shrinkage * mu)
    root, failed = torch.linalg.cholesky_ex(shrunk)
    if failed or shrinkage * mu <= float(shrunk.diagonal().max()) * scatter.precision:
        whitened = _pseudo_whitened(spread.T, scatter, shrinkage, mu)
    else:
        whitened = torch.linalg.solve_triangular(root, spread.T, upper=False)
    return (1 - shrinkage) * float(whitened.square().sum()) / (scatter.n - 1)


def _pseudo_whitened(spread: Tensor, scatter: Scatter, shrinkage: float, mu: float) -> Tensor:
    """Return R spread (r, C), R' R = pinv(S_a), because S_a may be singular for tiny shrinkage."""
    values = scatter.values * ((1 - shrinkage) / scatter.n) + shrinkage * mu
    is_above_rounding = values > values[-1] * scatter.precision
    return scatter.eigenbasis.coordinates(spread)[is_above_rounding] / values[is_above_rounding, None].sqrt()


def score(sample: Sample) -> Score:
    """(1 - a) tr(pinv(S_a) cov(g)), S_a = (1 - a) cov(X) + a mu I with a and mu of Ledoit and Wolf, g_i = mu_{y_i}.

    cov(X) with ddof 0 and cov(g) with ddof 1, as published.
    Range: 0 to (C - 1) N / (N - 1). Higher is better.
    Cost: O(N D^2 + D^3 / 3), the former shared with other metrics. D > N: N in place of D, and O(N^2 D).
    Source: Ibrahim et al., Newer is Not Always Better: Rethinking Transferability Metrics, Their Peculiarities,
    Stability and Performance, ECML PKDD 2022; a as in scikit-learn's LedoitWolf.
    Not for: models whose features have very different scales: a mu I is the same in every direction, so it is not
    invariant to affine maps, unlike H-score.
    """
    n = len(sample.labels)
    sample = sample.compact
    a, mu = ledoit_wolf(sample.scatter, mean_fourth(sample), sample.dim)
    diagnostics = {"shrinkage": a, "mean_variance": mu}
    if sample.scatter.is_collapsed:
        return Score(0.0, diagnostics, (f"all {n} rows are equal: the score is 0",))
    return Score(h_score_regularized(sample.scatter, a, mu), diagnostics)
