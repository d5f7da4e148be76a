"""Held-out accuracy of a linear classifier: the baseline for cheaper metrics.

The classifier is ridge regression on one-hot labels, not logistic regression: its folds are computed exactly from sums
shared by all metrics, without a tolerance or a number of steps that could differ between models.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from evaluation.results.choice import first_largest, last_least
from evaluation.transferability._scatter import Scatter
from evaluation.transferability.base import Sample, Score
from sslkit.data.held_out import draw_folds
from sslkit.errors import UserError
from sslkit.options.ranges import Positive, Several

PENALTIES = tuple(10.0**k for k in range(-8, 2))  # of the largest eigenvalue of the total scatter
COARSEST = 1e-3  # tolerance for equal scores, where a class has score 1: a round number


def chosen_penalty(scatter: Scatter) -> float:
    """Return the strongest of the `PENALTIES` with the least generalized cross-validation error.

    The error is a function of (total + alpha I)^-1. The rounding of `total`, max(n, D) eps of its largest eigenvalue,
    is a share max(n, D) eps / penalty of alpha; the error, a quotient of two such sums, has twice that precision.
    """
    errors = gcv_errors(scatter, [penalty * _unit(scatter) for penalty in PENALTIES])
    return PENALTIES[last_least(errors, [2 * scatter.precision / penalty for penalty in PENALTIES])]


def gcv_errors(scatter: Scatter, alphas: Sequence[float]) -> list[float]:
    """Return squared residuals over squared free degrees of freedom, of ridge regression with free intercept, by alpha.

    Both are sums of residuals over the directions, without cancellation: for a perfect fit both vanish.
    """
    varies = scatter.varies
    rank, counts = int(varies.sum()), scatter.moments.counts
    along = scatter.eigenbasis.coordinates(scatter.moments.products)[varies].square().sum(1) / scatter.values[varies]
    spread = (counts * (1 - counts / scatter.n)).sum()
    beyond = spread - along.sum()
    outside = float(beyond) if rank < scatter.n - 1 and beyond > spread * scatter.precision else 0.0
    shares = (alpha / (scatter.values[varies] + alpha) for alpha in alphas)  # unexplained share of each direction
    return [
        (outside + float(along @ left.square())) / (scatter.n - 1 - rank + float(left.sum())) ** 2 for left in shares
    ]


def held_out_scores(x: Tensor, hot: Tensor, scatter: Scatter, penalty: float) -> Tensor:
    """Return predictions (n, C) for these rows by ridge regression with a free intercept, fitted to all other rows.

    x: (n, D) the rows. hot: (n, C) their one-hot labels. scatter: of all rows, from which these are subtracted.
    """
    x = x - scatter.moments.mean
    others = scatter.n - len(x)
    mean = -x.sum(0) / others  # of the other rows, as all rows sum to 0
    counts = scatter.moments.counts - hot.sum(0)
    gram = scatter.total - x.T @ x - others * torch.outer(mean, mean)
    gram.diagonal().add_(penalty * _unit(scatter))
    products = scatter.moments.products - x.T @ hot - torch.outer(mean, counts)
    factor, failed = torch.linalg.cholesky_ex(gram)
    if failed:
        raise UserError(f"linear_probe: penalty={penalty:g} is too small for these features: raise it, or leave it out")
    weights = torch.cholesky_solve(products, factor)
    return (x - mean) @ weights + counts / others


def score(sample: Sample, *, folds: Several = 5, penalty: Positive | None = None) -> Score:
    """Cross-validated accuracy of ridge regression on one-hot labels.

    folds: stratified, drawn from the seed; at most N. penalty: of the ridge, as a multiple of the largest eigenvalue
    of the total scatter; None takes the one of 1e-8, 1e-7, ..., 10 with the least generalized cross-validation error
    on all rows, the strongest of those equal up to rounding.
    Range: 0 to 1. Higher is better. Cost: O(N D^2 + folds D^3), D at most N; the scatter is shared with other metrics.
    Source: Hastie et al., The Elements of Statistical Learning, 2nd ed., sec. 4.2, 7.10 and eq. 7.52; a baseline.
    Not for: classes with fewer images than folds, which are hardly learnt, and not as a ground truth for metrics:
    fine-tuning changes the features, a linear classifier does not.
    """
    rows, y = sample.compact, sample.labels
    penalty = chosen_penalty(rows.scatter) if penalty is None else penalty
    rounding = min(rows.scatter.precision / penalty, COARSEST)
    fold = draw_folds(y, min(folds, len(y)), sample.generator("linear_probe"), sample.groups)
    right = torch.zeros(len(y), dtype=torch.float64, device=y.device)
    for number in torch.unique(fold).tolist():
        held = (fold == number).nonzero()[:, 0]
        hot = torch.nn.functional.one_hot(y[held], sample.n_classes).double()
        predictions = held_out_scores(_rows(rows, held), hot, rows.scatter, penalty)
        right[held] = (first_largest(predictions, rounding) == y[held]).double()
    return Score(float(right.mean()), {"penalty": penalty}, terms=right)


def _unit(scatter: Scatter) -> float:
    """Return the largest eigenvalue as the unit, independent of scale and zero columns; 1 if all rows are equal."""
    return float(scatter.values[-1]) or 1.0


def _rows(sample: Sample, rows: Tensor) -> Tensor:
    """Return some rows (n, D) float64, with the sample's shift of each class."""
    x = sample.x[rows].double()
    return x if sample.shift is None else x + sample.shift[sample.y[rows]]
