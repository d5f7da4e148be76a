"""LogME: the evidence of a Bayesian linear model from features to labels, its two precisions fitted to it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from evaluation.transferability._scatter import Scatter
from evaluation.transferability.base import Sample, Score
from sslkit.errors import UserError

ROUNDS = 11  # of the fixed point, at most
TOLERANCE = 1e-3  # of tau, relative, at which it stops
SMALLEST = 1e-300
EPSILON = 1e-5  # keeps both precisions finite where the fit or the weights are nothing


@dataclass(frozen=True)
class Axes:
    """Features in the eigenbasis of their total scatter; the uncentred X'X is diag(values) + n mean mean' there.

    n rows. values, mean: (d,); in the directions beyond d the features are 0 in every row.
    """

    n: int
    values: Tensor
    mean: Tensor

    def inverse_mean(self, inverse: Tensor) -> tuple[Tensor, Tensor]:
        """(diag(values) + tau)^-1 mean (d, K), and 1 + n mean' of it: what Sherman-Morrison divides by."""
        weighted = inverse * self.mean[:, None]
        return weighted, 1 + self.n * (self.mean @ weighted)

    def logdet(self, tau: Tensor) -> Tensor:
        """(K,) ln det(I + X'X / tau), by the matrix determinant lemma; directions without features add nothing."""
        shifted = self.values[:, None] + tau
        grown = shifted.log() - tau.log()
        return grown.sum(0) + self.inverse_mean(1 / shifted)[1].log()


@dataclass(frozen=True)
class Targets:
    """K targets in the same coordinates.

    mean: (K,). along: (d, K) coordinates on the left singular vectors of the centred features. beyond: (K,) squared
    length of what is centred and outside them.
    """

    mean: Tensor
    along: Tensor
    beyond: Tensor

    def take(self, columns: Tensor) -> "Targets":
        return Targets(self.mean[columns], self.along[:, columns], self.beyond[columns])


@dataclass(frozen=True)
class Fit:
    """(K,) each: the two precisions, of weights (alpha) and noise (beta), and the squares that gave them."""

    alpha: Tensor
    beta: Tensor
    weights: Tensor
    residual: Tensor

    @property
    def tau(self) -> Tensor:
        """At least a number that can be divided by: features that are all 0 want no weights at all."""
        return (self.alpha / self.beta).clamp_min(SMALLEST)


def ridge(axes: Axes, targets: Targets, tau: Tensor) -> Fit:
    """One round: posterior mean at tau = alpha / beta, then the precisions that fit it.

    The mean of the rows stands apart throughout: with an offset of 1000 times the spread no digits are lost.
    """
    roots = axes.values.sqrt()[:, None]
    inverse = 1 / (axes.values[:, None] + tau)
    tilted, lift = axes.inverse_mean(inverse)
    explained = (tilted * roots).mul_(targets.along).sum(0)
    gap = (targets.mean - explained) / lift  # of the targets' mean, left unexplained
    pull = axes.n * gap * tilted
    weights = (inverse * roots).mul_(targets.along).add_(pull).square_().sum(0)
    apart = (inverse * tau).mul_(targets.along).sub_(pull.mul_(roots)).square_().sum(0)
    residual = apart + axes.n * gap.square() + targets.beyond
    shared = axes.n * tilted.square_().sum(0) / lift
    effective = axes.values @ inverse + tau * shared  # tr X'X (X'X + tau)^-1
    free = axes.n - len(axes.values) + tau * (inverse.sum(0) - shared)  # n - effective, without the cancellation
    return Fit(effective / (weights + EPSILON), free / (residual + EPSILON), weights, residual)


def fixed_point(axes: Axes, targets: Targets) -> tuple[Fit, Tensor]:
    """The precisions of every target (You et al. 2022, alg. 3), and the rounds they took, (K,)."""
    k = len(targets.mean)
    found = torch.empty(4, k, dtype=torch.float64, device=axes.values.device)
    rounds = torch.zeros(k, dtype=torch.int64, device=axes.values.device)
    active, tau = torch.arange(k, device=axes.values.device), torch.ones_like(targets.mean)
    for _ in range(ROUNDS):
        fit = ridge(axes, targets, tau)
        found[:, active] = torch.stack([fit.alpha, fit.beta, fit.weights, fit.residual])
        rounds[active] += 1
        going = (fit.tau - tau).abs() > TOLERANCE * tau
        if not going.any():
            break
        active, targets, tau = active[going], targets.take(going), fit.tau[going]
    return Fit(*found), rounds


def evidence(axes: Axes, fit: Fit) -> Tensor:
    """(K,) log evidence of an image (You et al. 2021, eq. 2), D/2 ln a and the determinant together: what the two hold
    of directions without features is the same."""
    fitted = fit.beta * fit.residual + fit.alpha * fit.weights + axes.n * math.log(2 * math.pi)
    return (axes.n * fit.beta.log() - axes.logdet(fit.tau) - fitted) / (2 * axes.n)  # D ln a is in the determinant


def centred_axes(scatter: Scatter) -> tuple[Axes, Callable[[Tensor], Tensor]]:
    """The features' axes, and what takes X't (d, K) of centred features to coordinates on the left singular vectors."""
    values, basis = scatter.values, scatter.eigenbasis
    n = int(scatter.n)
    kept = scatter.varies
    values = values * kept
    inverse_roots = torch.where(kept, values, torch.inf).rsqrt()[:, None]
    mean = basis.coordinates(scatter.moments.mean[:, None])[:, 0]
    return Axes(n, values, mean), lambda products: basis.coordinates(products).mul_(inverse_roots)


def class_targets(scatter: Scatter, onto: Callable[[Tensor], Tensor]) -> Targets:
    """One target a class, 1 for its images and 0 for others: X't is counts and means, no row is looked at."""
    moments = scatter.moments
    return _targets(moments.shares, moments.products, moments.counts * (1 - moments.shares), onto)


def number_targets(sample: Sample, t: Tensor, onto: Callable[[Tensor], Tensor]) -> Targets:
    """The columns of t (N, K) as they are."""
    mean = t.mean(0)
    centred = t - mean
    offset = sample.moments.mean
    products = torch.zeros(t.shape[1], len(offset), dtype=torch.float64, device=t.device)
    for rows, x in sample.blocks():
        products.addmm_(centred[rows].T, x.sub_(offset))
    return _targets(mean, products.T, centred.square().sum(0), onto)


def _targets(mean: Tensor, products: Tensor, squares: Tensor, onto: Callable[[Tensor], Tensor]) -> Targets:
    """products: (d, K) X't of centred features. squares: (K,) squared lengths of the centred targets."""
    along = onto(products)
    return Targets(mean, along, (squares - along.square().sum(0)).clamp_min(0))


def logme(axes: Axes, targets: Targets) -> tuple[Tensor, Tensor]:
    """(K,) evidence per image of each target, and the rounds of its fixed point."""
    fit, rounds = fixed_point(axes, targets)
    return evidence(axes, fit), rounds


TAKES_NUMBERS = True


def score(sample: Sample, *, targets: str = "classes") -> Score:
    """mean_c of max_{a,b} ln p(t_c | X, a, b) / N: evidence of t_c = X w + noise, w ~ N(0, 1/a), noise ~ N(0, 1/b).

    ln p = D/2 ln a + N/2 ln b - 1/2 ln det(a I + b X'X) - b/2 ||t - X m||^2 - a/2 ||m||^2 - N/2 ln 2 pi with posterior
    mean m; a and b by a fixed point of at most 11 rounds. The features are neither centred nor scaled. D counts every
    dimension: the published code leaves (D - rank) / 2 ln a out, so that dead units and D > N raise its score.
    targets: "classes", one target of 0 and 1 a class, and of several labels an image one a label; "regression", the
        columns of numeric labels as they are, columns of zeros left out.
    Range: unbounded; for classes mostly -1 to 2. Higher is better.
    Cost: O(N D^2 + D^3), shared with other metrics, then O(11 D C). D > N: N in place of D, and O(N^2 D).
    Source: You et al., LogME: Practical Assessment of Pre-trained Models for Transfer Learning, ICML 2021, eq. 2; the
    fixed point of You et al., Ranking and Tuning Pre-trained Models, JMLR 2022, alg. 3; official code's epsilon.
    Not for: comparing tasks, or targets in other units: the evidence is a density of the labels.
    """
    if targets not in ("classes", "regression"):
        raise UserError(f"logme has targets 'classes' or 'regression', not {targets!r}")
    classes = targets == "classes" and (sample.y is not None or sample.targets.shape[1] == 1)
    if classes:
        sample.labels  # noqa: B018  (raises where the labels are no classes)
    small = sample.compact
    axes, onto = centred_axes(small.scatter)
    wanted = class_targets(small.scatter, onto) if classes else number_targets(small, _numbers(sample), onto)
    values, rounds = logme(axes, wanted)
    diagnostics = {"rounds": int(rounds.max()), "targets": len(values), "rank": int((axes.values > 0).sum())}
    return Score(float(values.mean()), diagnostics)


def _numbers(sample: Sample) -> Tensor:
    if sample.targets is None:
        raise UserError("logme with targets='regression' takes labels that are numbers, not names")
    used = (sample.targets != 0).any(0)
    if not used.any():
        raise UserError("every label is 0: logme has nothing to explain")
    return sample.targets[:, used]
