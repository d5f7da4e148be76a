"""SFDA: confidence of a regularised discriminant in the images' own classes, after mixing in other classes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from evaluation.transferability._scatter import add_upper_gram, mirror_upper
from evaluation.transferability.base import Sample, Score
from sslkit.errors import UserError

SATURATED = 0.9999  # of a mean probability: what is left of 1 is too small to rank by, a round number


@dataclass(frozen=True, eq=False)
class Discriminant:
    """p(c|x) = softmax_c( x' A^-1 mu_c - 1/2 mu_c' A^-1 mu_c + ln pi_c ).

    weights: (D, C) A^-1 mu_c. bias: (C,) the rest. jitter: what was added to the diagonal of A to make it definite.
    """

    weights: Tensor
    bias: Tensor
    jitter: float = 0.0

    def posterior(self, x: Tensor) -> Tensor:
        """Return the posterior (N, C) of rows (N, D)."""
        return torch.softmax(torch.addmm(self.bias, x, self.weights), 1)

    def own_posterior(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the posterior (N,) of each row's own class y (N,)."""
        return self.posterior(x).gather(1, y[:, None])[:, 0]


@dataclass(frozen=True, eq=False)
class FirstStage:
    """The discriminant on the original features, shared by SFDA and ETran.

    sample: in at most N dimensions, with its own origin. mean: (D,) of all rows, to be subtracted for the
    discriminant. g: the shrinkage. lam: the leading eigenvalue behind g. columns: number of non-constant columns.
    """

    sample: Sample
    mean: Tensor
    discriminant: Discriminant
    g: float
    lam: float
    columns: int

    @property
    def means(self) -> Tensor:
        """Class means (C, D), about `mean`."""
        return self.sample.moments.means - self.mean

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield (rows, features about `mean`)."""
        for rows, x in self.sample.blocks():
            x -= self.mean
            yield rows, x

    def own_posterior(self) -> Tensor:
        """Posterior (N,) of each image's own class."""
        y = self.sample.labels
        return torch.cat([self.discriminant.own_posterior(x, y[rows]) for rows, x in self.blocks()])


def leading_eigenvalue(within: Tensor, ones: Tensor | None = None) -> float:
    """Estimate the largest eigenvalue of (D, D): 3 double power steps from its row sums, as published.

    ones: (D,) the vector of ones in the basis of `within`, if that is not the features' basis.
    """
    v = within.sum(1) if ones is None else within @ ones
    v = u = torch.nn.functional.normalize(v, dim=0, eps=1e-300)  # products of large features would overflow
    for _ in range(3):
        u = torch.nn.functional.normalize(within @ v, dim=0, eps=1e-300)
        v = torch.nn.functional.normalize(within @ u, dim=0, eps=1e-300)
    return float(v @ (within @ u))


def shrinkage(lam: float) -> float:
    """Return g = max(exp(-5 lam), 1e-10): large for narrow classes."""
    return max(math.exp(-5 * lam), 1e-10)


def shrunk(within: Tensor, g: float, columns: int) -> Tensor:
    """Return A = (1 - g) Sw + g (tr Sw / D) I; Sw (r, r) within-class covariance. columns: D, non-constant ones."""
    a = within * (1 - g)
    a.diagonal().add_(g * within.trace() / max(columns, 1))
    return a


def discriminant(a: Tensor, means: Tensor, shares: Tensor) -> Discriminant:
    """Make the discriminant from A (D, D), class means (C, D) and class shares pi (C,), by Cholesky."""
    factor, jitter = _definite(a, means)
    weights = torch.cholesky_solve(means.T, factor)
    return Discriminant(weights, shares.log() - (means.T * weights).sum(0) / 2, jitter)


def _definite(a: Tensor, means: Tensor) -> tuple[Tensor, float]:
    """Return the Cholesky factor of A with the smallest sufficient jitter, tenfold from 1e-15 of the features' size.

    The size is the spread within the classes, or between their means if that is 0.
    """
    scale = float(a.diagonal().mean()) if len(a) else 0.0
    scale = scale or float(means.square().mean()) or 1.0
    for jitter in (0.0, *(scale * 10.0**exponent for exponent in range(-15, 1))):
        lifted = a.clone()
        lifted.diagonal().add_(jitter)
        factor, failed = torch.linalg.cholesky_ex(lifted)
        if not failed:
            return factor, jitter
    raise UserError(
        "the covariance within the classes has no Cholesky factor: are the features beyond float64's range?"
    )


def others(means: Tensor) -> Tensor:
    """Return o_c (C, D), the mean of the other classes' means (C, D)."""
    return (means.sum(0) - means) / (len(means) - 1)


def confidence(posterior: Tensor, y: Tensor) -> Tensor:
    """Return q_i = softmax(p_i)[y_i] (N,), of posteriors p (N, C): a second softmax, on probabilities, as published."""
    return torch.softmax(posterior, 1).gather(1, y[:, None])[:, 0]


def confmix(x: Tensor, q: Tensor, y: Tensor, means: Tensor) -> Tensor:
    """Return q_i x_i + (1 - q_i) o_{y_i}: rows of low confidence get more of the other classes."""
    return q[:, None] * x + (1 - q)[:, None] * others(means)[y]


def standardize_columns(sample: Sample) -> Sample:
    """Scale each column to mean 0 and variance 1, constant columns to 0, in a copy of the features."""
    moments = sample.moments
    std = moments.column_variances.sqrt()
    inverse = torch.where(moments.varies, 1 / std, torch.zeros_like(std))
    x = torch.cat([(block - moments.mean) * inverse for _, block in sample.blocks()])
    return replace(sample, x=x, shift=None, origin=None, reference=None)


def first_stage(sample: Sample) -> FirstStage:
    """Return the regularised discriminant of a sample, computed once for all metrics."""
    return sample.once("sfda's first stage", lambda: _first_stage(sample))


def _first_stage(sample: Sample) -> FirstStage:
    """Compute the first stage without constant columns, which contain only rounding and do not count in D."""
    columns = int(sample.moments.varies.sum())
    small = sample.compact
    scatter = small.scatter
    within = scatter.within / scatter.n
    mean = scatter.moments.mean
    lam = leading_eigenvalue(within, small.ones)
    g = shrinkage(lam)
    fitted = discriminant(shrunk(within, g, columns), scatter.moments.means - mean, scatter.moments.shares)
    return FirstStage(small, mean, fitted, g, lam, columns)


def mix_rows(stage: FirstStage) -> tuple[Tensor, Tensor, Tensor]:
    """Return q (N,), the first stage's posterior of the own class (N,), and class means (C, D) of the mixed rows."""
    y, moments = stage.sample.labels, stage.sample.moments
    q, own_posterior = torch.empty(2, len(y), dtype=torch.float64, device=y.device)
    means = torch.zeros_like(moments.means)
    for rows, x in stage.blocks():
        posterior = stage.discriminant.posterior(x)
        q[rows], own_posterior[rows] = confidence(posterior, y[rows]), posterior.gather(1, y[rows, None])[:, 0]
        means.index_add_(0, y[rows], confmix(x, q[rows], y[rows], stage.means))
    return q, own_posterior, means / moments.counts[:, None]


def refit(stage: FirstStage, q: Tensor, means: Tensor) -> Discriminant:
    """Refit the discriminant to the mixed rows, with the first stage's g. means: (C, D) of the mixed rows."""
    y = stage.sample.labels
    within = torch.zeros(means.shape[1], means.shape[1], dtype=torch.float64, device=means.device)
    for rows, x in stage.blocks():
        mixed = confmix(x, q[rows], y[rows], stage.means)
        mixed -= means[y[rows]]
        add_upper_gram(within, mixed)
    a = shrunk(mirror_upper(within) / len(y), stage.g, stage.columns)
    return discriminant(a, means, stage.sample.moments.shares)


def score(sample: Sample, *, standardize: bool = False) -> Score:
    """mean_i p(y_i | x_i) of a regularised discriminant that is fitted twice, the second time on ConfMix'd features:
    A = (1 - g) Sw + g (tr Sw / D) I, g = exp(-5 lambda), lambda the leading eigenvalue of Sw, D the number of columns
    that vary (constant ones are left out: on them A would be only g tr Sw / D, as low as 1e-10 of the others);
    x_i <- q_i x_i + (1 - q_i) o, q_i the (softened) posterior of the own class, o the mean of the other classes' means.

    standardize: divide each column by its std first (a copy of the features), since lambda has a unit: g is at its
        floor of 1e-10 for features whose Sw has an eigenvalue above 4.6. Off, as published.
    Range: 0 to 1. Higher is better. Cost: O(2 N D^2 + D^3), half of it shared with other metrics.
    Source: Shao et al., Not All Models Are Equal (SFDA), ECCV 2022, eq. 4 to 9, or the authors' code where it differs.
    Not for: D >= N, where the score is 1 for every model if g is small; models whose features differ in scale.
    """
    stage = first_stage(standardize_columns(sample) if standardize else sample)
    y = sample.labels
    q, own_posterior, means = mix_rows(stage)
    second = refit(stage, q, means)
    terms = torch.empty_like(q)
    for rows, x in stage.blocks():
        mixed = confmix(x, q[rows], y[rows], stage.means)
        terms[rows] = second.own_posterior(mixed, y[rows])
    value = float(terms.mean())
    diagnostics = {"shrinkage": stage.g, "lambda": stage.lam, "first_stage": float(own_posterior.mean())}
    diagnostics["jitter"] = max(stage.discriminant.jitter, second.jitter)
    return Score(value, diagnostics, saturation(value), terms)


def saturation(value: float) -> tuple[str, ...]:
    """Return a warning for scores too near 1 to rank models."""
    return (f"the score is {value:.6f}: too near 1 to rank models",) if value > SATURATED else ()
