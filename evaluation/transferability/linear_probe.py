"""Held-out accuracy of a linear classifier: the baseline that a cheaper metric must beat to be worth its name.

The classifier is ridge regression on one-hot labels, not logistic regression: its folds follow exactly from sums that
all metrics share, without a tolerance or a number of steps that could differ from model to model.
"""

import torch
from torch import Tensor

from evaluation.scatter import Scatter
from evaluation.transferability.base import Sample, Score
from sslkit.errors import UserError

PENALTIES = tuple(10.0**k for k in range(-8, 2))  # of the largest eigenvalue of the total scatter


def stratified_folds(y: Tensor, folds: int, generator: torch.Generator) -> Tensor:
    """(N,) the number of each row's fold: the rows of a class are dealt out in turn, in a drawn order."""
    labels = y.cpu()
    drawn = torch.randperm(len(labels), generator=generator)
    dealt = drawn[labels[drawn].argsort(stable=True)]
    fold = torch.empty_like(labels)
    fold[dealt] = torch.arange(len(labels)) % folds
    return fold.to(y.device)


def chosen_penalty(scatter: Scatter) -> float:
    """Of `PENALTIES` the one with the least generalized cross-validation error."""
    values = scatter.values
    moments = scatter.eigenbasis.coordinates(_products(scatter)).square().sum(1)
    counts = scatter.moments.counts
    spread = (counts * (1 - counts / scatter.n)).sum()

    def error(alpha: Tensor) -> float:
        shrunk = values + alpha
        residual = spread - (moments * (values + 2 * alpha) / shrunk.square()).sum()
        return float(residual.clamp_min(0) / (scatter.n - 1 - (values / shrunk).sum()).square())

    return min(PENALTIES, key=lambda penalty: error(penalty * _unit(scatter)))


def held_out_scores(x: Tensor, hot: Tensor, scatter: Scatter, penalty: float) -> Tensor:
    """(n, C) what ridge regression with a free intercept, fitted to all other rows, says of these rows.

    x: (n, D) the rows. hot: (n, C) their one-hot labels. scatter: of all rows; the others' is what is left of it.
    """
    x = x - scatter.moments.mean
    others = scatter.n - len(x)
    mean = -x.sum(0) / others  # of the other rows, as all rows sum to 0
    counts = scatter.moments.counts - hot.sum(0)
    gram = scatter.total - x.T @ x - others * torch.outer(mean, mean)
    gram.diagonal().add_(penalty * _unit(scatter))
    products = _products(scatter) - x.T @ hot - torch.outer(mean, counts)
    weights = torch.cholesky_solve(products, torch.linalg.cholesky(gram))
    return (x - mean) @ weights + counts / others


def score(sample: Sample, *, folds: int = 5, penalty: float | None = None) -> Score:
    """Share of images that ridge regression on one-hot labels, fitted to the other folds, puts in the right class.

    folds: stratified, drawn from the seed; at most N. penalty: of the ridge, as a multiple of the largest eigenvalue
    of the total scatter; None takes the one of 1e-8, 1e-7, ..., 10 with the least generalized cross-validation error
    on all rows.
    Range: 0 to 1. Higher is better. Cost: O(N D^2 + folds D^3), D at most N; the scatter is shared with other metrics.
    Source: Hastie et al., The Elements of Statistical Learning, 2nd ed., sec. 4.2, 7.10 and eq. 7.52; a baseline.
    Not for: classes of fewer images than folds, which are hardly learnt, and judging metrics by: fine-tuning moves
    features that a linear classifier takes as they are.
    """
    if folds < 2 or not (penalty is None or penalty > 0):
        raise UserError(f"folds={folds} must be at least 2 and penalty={penalty} above 0")
    rows, y = sample.compact, sample.labels
    penalty = chosen_penalty(rows.scatter) if penalty is None else penalty
    fold = stratified_folds(y, min(folds, len(y)), sample.generator("linear_probe"))
    right = torch.zeros(len(y), dtype=torch.float64, device=y.device)
    for number in range(min(folds, len(y))):
        held = (fold == number).nonzero()[:, 0]
        hot = torch.nn.functional.one_hot(y[held], sample.n_classes).double()
        found = held_out_scores(_rows(rows, held), hot, rows.scatter, penalty)
        right[held] = (found.argmax(1) == y[held]).double()
    return Score(float(right.mean()), {"penalty": penalty}, terms=right)


def _products(scatter: Scatter) -> Tensor:
    """(D, C) sum_i (x_i - m) y_i' over all rows, y_i one-hot."""
    moments = scatter.moments
    return (moments.counts[:, None] * (moments.means - moments.mean)).T


def _unit(scatter: Scatter) -> float:
    """The largest eigenvalue, so that neither scale nor columns of zeros matter; 1 if all rows are equal."""
    return float(scatter.values[-1]) or 1.0


def _rows(sample: Sample, rows: Tensor) -> Tensor:
    """(n, D) float64 some rows, each class moved as in the sample."""
    x = sample.x[rows].double()
    return x if sample.shift is None else x + sample.shift[sample.y[rows]]
