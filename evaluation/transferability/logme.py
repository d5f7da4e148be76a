"""LogME: the evidence of a Bayesian linear model from features to labels, maximised over its two precisions.

`score` writes the features in the eigenbasis of their scatter (`Axes`) and each class indicator in the same coordinates
(`Targets`); a fixed point finds the precisions of all classes at once (`Fit`); the score is the mean log evidence.
The evidence does not change with the scale of the features, so the fixed point has no absolute constant for them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from evaluation.transferability._scatter import Scatter, unit_of
from evaluation.transferability.base import Sample, Score
from sslkit.errors import UserError

ROUNDS = 11  # of the fixed point, at most, as in the authors' code
TOLERANCE = 1e-3  # of tau, relative, at which it stops, as in the authors' code
SMALLEST = 1e-300  # near the least of float64: a ratio of 0 would have no logarithm
EPSILON = 1e-5  # keeps both precisions finite if the residual or the weights are 0; of the weights at unit 1
Unit = Literal["relative", "absolute"]
NOTICED = 0.01  # share of EPSILON in the squared weights, above which it shows in the score


@dataclass(frozen=True)
class Axes:
    """Features in the eigenbasis of their total scatter; the uncentred X'X is diag(values) + n mean mean' there.

    n rows. values, mean: (d,); in the directions beyond d the features are 0 in every row. unit: alpha / beta at which
    the fixed point starts, and what its EPSILON is divided by; it grows with the square of the features.
    """

    n: int
    values: Tensor
    mean: Tensor
    unit: float = 1.0

    def inverse_mean(self, inverse: Tensor) -> tuple[Tensor, Tensor]:
        """Return (diag(values) + tau)^-1 mean (d, K), and 1 + n mean' of it, the divisor of Sherman-Morrison."""
        weighted = inverse * self.mean[:, None]
        return weighted, 1 + self.n * (self.mean @ weighted)

    def logdet(self, tau: Tensor) -> Tensor:
        """Return ln det(I + X'X / tau) (K,), by the matrix determinant lemma; directions without features add 0."""
        shifted = self.values[:, None] + tau
        grown = shifted.log() - tau.log()
        return grown.sum(0) + self.inverse_mean(1 / shifted)[1].log()


@dataclass(frozen=True)
class Targets:
    """K targets in the same coordinates.

    mean: (K,). along: (d, K) coordinates on the left singular vectors of the centred features. beyond: (K,) squared
    length of the centred targets outside their span. unit: (K,) what EPSILON is in, for small numbers less than 1.
    """

    mean: Tensor
    along: Tensor
    beyond: Tensor
    unit: Tensor

    def take(self, columns: Tensor) -> "Targets":
        return Targets(self.mean[columns], self.along[:, columns], self.beyond[columns], self.unit[columns])


@dataclass(frozen=True)
class Fit:
    """(K,) each: the two precisions, of weights (alpha) and noise (beta), and the squares that gave them."""

    alpha: Tensor
    beta: Tensor
    weights: Tensor
    residual: Tensor

    @property
    def tau(self) -> Tensor:
        """alpha / beta, bounded below so that it can be a divisor; for features that are all 0 the weights are 0."""
        return (self.alpha / self.beta).clamp_min(SMALLEST)


def _offset(axes: Axes, targets: Targets, tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (X'X + tau)^-1 in the eigenbasis (d, K), `Axes.inverse_mean` of it, and the targets' unexplained mean."""
    inverse = 1 / (axes.values[:, None] + tau)
    tilted, lift = axes.inverse_mean(inverse)
    explained = (tilted * axes.values.sqrt()[:, None]).mul_(targets.along).sum(0)
    return inverse, tilted, lift, (targets.mean - explained) / lift


def ridge(axes: Axes, targets: Targets, tau: Tensor) -> Fit:
    """Do one round: posterior mean at tau = alpha / beta, then the precisions for it.

    The mean of the rows is kept separate, so that an offset of 1000 times the spread loses no precision.
    """
    roots = axes.values.sqrt()[:, None]
    inverse, tilted, lift, gap = _offset(axes, targets, tau)
    pull = axes.n * gap * tilted
    weights = (inverse * roots).mul_(targets.along).add_(pull).square_().sum(0)
    apart = (inverse * tau).mul_(targets.along).sub_(pull.mul_(roots)).square_().sum(0)
    residual = apart + axes.n * gap.square() + targets.beyond
    shared = axes.n * tilted.square_().sum(0) / lift
    effective = axes.values @ inverse + tau * shared  # tr X'X (X'X + tau)^-1
    free = axes.n - len(axes.values) + tau * (inverse.sum(0) - shared)  # n - effective, without the cancellation
    least = EPSILON * targets.unit
    return Fit(effective / (weights + least / axes.unit), free / (residual + least), weights, residual)


def fixed_point(axes: Axes, targets: Targets) -> tuple[Fit, Tensor]:
    """Return the precisions of every target (You et al. 2022, alg. 3), and the numbers of rounds (K,)."""
    k = len(targets.mean)
    fits = torch.empty(4, k, dtype=torch.float64, device=axes.values.device)
    rounds = torch.zeros(k, dtype=torch.int64, device=axes.values.device)
    active, tau = torch.arange(k, device=axes.values.device), torch.full_like(targets.mean, axes.unit)
    for _ in range(ROUNDS):
        fit = ridge(axes, targets, tau)
        fits[:, active] = torch.stack([fit.alpha, fit.beta, fit.weights, fit.residual])
        rounds[active] += 1
        going = (fit.tau - tau).abs() > TOLERANCE * tau
        if not going.any():
            break
        active, targets, tau = active[going], targets.take(going), fit.tau[going]
    return Fit(*fits), rounds


def posterior_mean(axes: Axes, targets: Targets, tau: Tensor) -> Tensor:
    """Return the weights (d, K) of the linear models at tau (K,), in the eigenbasis of the features."""
    inverse, tilted, _, gap = _offset(axes, targets, tau)
    return inverse * axes.values.sqrt()[:, None] * targets.along + axes.n * gap * tilted


def evidence(axes: Axes, fit: Fit) -> Tensor:
    """Return the log evidence per image (K,) (You et al. 2021, eq. 2), with D/2 ln a and the determinant combined:
    their terms for directions without features cancel."""
    fitted = fit.beta * fit.residual + fit.alpha * fit.weights + axes.n * math.log(2 * math.pi)
    return (axes.n * fit.beta.log() - axes.logdet(fit.tau) - fitted) / (2 * axes.n)  # D ln a is in the determinant


def own_unit(values: Tensor, mean: Tensor, n: int) -> float:
    """Return `unit_of` the mean variance along the directions that vary, or of the squared mean where none does."""
    rank = int((values > 0).sum())
    return unit_of(float(values.sum()) / (n * rank) if rank else float(mean @ mean))


def make_axes(scatter: Scatter) -> tuple[Axes, Callable[[Tensor], Tensor]]:
    """Return the features' axes, and the map of X't (d, K) of centred features to left singular coordinates."""
    values, basis = scatter.values, scatter.eigenbasis
    n = int(scatter.n)
    varies = scatter.varies
    values = values * varies
    inverse_roots = torch.where(varies, values, torch.inf).rsqrt()[:, None]
    mean = basis.coordinates(scatter.moments.mean[:, None])[:, 0]
    axes = Axes(n, values, mean, own_unit(values, mean, n))
    return axes, lambda products: basis.coordinates(products).mul_(inverse_roots)


def class_targets(scatter: Scatter, onto: Callable[[Tensor], Tensor]) -> Targets:
    """Make one target per class, 1 for its images and 0 for others: X't follows from counts and means."""
    moments = scatter.moments
    units = torch.ones_like(moments.shares)
    return _targets(moments.shares, moments.products, moments.counts * (1 - moments.shares), units, onto)


def number_targets(sample: Sample, t: Tensor, onto: Callable[[Tensor], Tensor]) -> Targets:
    """Make targets from the columns of t (N, K)."""
    mean = t.mean(0)
    centred = t - mean
    offset = sample.moments.mean
    products = torch.zeros(t.shape[1], len(offset), dtype=torch.float64, device=t.device)
    for rows, x in sample.blocks():
        products.addmm_(centred[rows].T, x.sub_(offset))
    units = [min(unit_of(largest**2), 1.0) for largest in t.abs().amax(0).tolist()]
    return _targets(mean, products.T, centred.square().sum(0), mean.new_tensor(units), onto)


def _targets(
    mean: Tensor, products: Tensor, squares: Tensor, units: Tensor, onto: Callable[[Tensor], Tensor]
) -> Targets:
    """Make targets. products: (d, K) X't of centred features. squares: (K,) squared lengths of the centred targets."""
    along = onto(products)
    return Targets(mean, along, (squares - along.square().sum(0)).clamp_min(0), units)


def logme(axes: Axes, targets: Targets) -> tuple[Tensor, Tensor]:
    """Return the evidence per image (K,) of each target, and the rounds of its fixed point."""
    fit, rounds = fixed_point(axes, targets)
    return evidence(axes, fit), rounds


TAKES_NUMBERS = True


def score(sample: Sample, *, targets: Literal["classes", "regression"] = "classes", unit: Unit = "relative") -> Score:
    """mean_c of max_{a,b} ln p(t_c | X, a, b) / N: evidence of t_c = X w + noise, w ~ N(0, 1/a), noise ~ N(0, 1/b).

    ln p = D/2 ln a + N/2 ln b - 1/2 ln det(a I + b X'X) - b/2 ||t - X m||^2 - a/2 ||m||^2 - N/2 ln 2 pi with posterior
    mean m; a and b by a fixed point of at most 11 rounds. The features are not centred. D counts every dimension: the
    published code leaves (D - rank) / 2 ln a out, so that dead units and D > N raise its score.
    targets: "classes", one target of 0 and 1 per class (or per label, for several labels per image); "regression", the
        columns of numeric labels, without columns of zeros.
    unit: of the constants of the fixed point, its start and the code's 1e-5: "relative", the power of 10 next to the
        scale of the features, so that it is the published fixed point for a mean variance of 0.1 to 10, and features
        times 10 have the same score, as they have the same evidence (and that of numbers below 0.3, so that a tenth of
        them adds ln 10); "absolute", 1, as published, whose score is wrong for large features and inexact for tiny
        ones, with a warning.
    Range: unbounded; for classes mostly -1 to 2. Higher is better.
    Cost: O(N D^2 + D^3), shared with other metrics, then O(11 D C). D > N: N in place of D, and O(N^2 D).
    Source: You et al., LogME: Practical Assessment of Pre-trained Models for Transfer Learning, ICML 2021, eq. 2; the
    fixed point of You et al., Ranking and Tuning Pre-trained Models, JMLR 2022, alg. 3; official code's epsilon.
    Not for: comparing tasks, or targets in other units: the evidence is a density of the labels.
    """
    classes = targets == "classes" and (sample.y is not None or sample.targets.shape[1] == 1)
    if classes:
        sample.labels  # noqa: B018  (raises if the labels are not classes)
    small = sample.compact
    axes, onto = make_axes(small.scatter)
    wanted = class_targets(small.scatter, onto) if classes else number_targets(small, _numbers(sample), onto)
    if unit == "absolute":
        axes, wanted = replace(axes, unit=1.0), replace(wanted, unit=torch.ones_like(wanted.unit))
    fit, rounds = fixed_point(axes, wanted)
    values = evidence(axes, fit)
    diagnostics = {"rounds": int(rounds.max()), "targets": len(values), "rank": int((axes.values > 0).sum())}
    return Score(float(values.mean()), diagnostics, _warnings(axes, fit, rounds) if unit == "absolute" else ())


def _warnings(axes: Axes, fit: Fit, rounds: Tensor) -> tuple[str, ...]:
    """Return a warning where the published constants show in the score."""
    share = float((EPSILON / (fit.weights + EPSILON)).max())
    warnings = ()
    if axes.values.any() and share > NOTICED:
        warnings = (f"the published 1e-5 is up to {share:.0%} of the squared weights: too large for these features",)
    elif int(rounds.max()) == ROUNDS:
        warnings = (f"some targets took all {ROUNDS} rounds: their precisions still depend on the start at 1",)
    return tuple(f"{warning}; unit='relative' has no such constant" for warning in warnings)


def _numbers(sample: Sample) -> Tensor:
    if sample.targets is None:
        raise UserError("logme with targets='regression' takes labels that are numbers, not names")
    used = (sample.targets != 0).any(0)
    if not used.any():
        raise UserError("every label is 0: logme needs a label that is not 0")
    return sample.targets[:, used]
