"""Mixtures of Gaussians fitted by EM: scikit-learn's, step for step, as large matrix products."""

import math
import warnings as python_warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor

from evaluation.transferability._threads import threads
from sslkit.errors import UserError

MOST_STEPS, TOLERANCE = 100, 1e-3  # scikit-learn's: of EM, and of the mean log-likelihood's last change
SMALLEST = -600.0  # logarithm; below e^-708 numbers are denormal, and products of them take five times as long
TINY = 10 * torch.finfo(torch.float64).eps  # minimum rows of a component
NEGLIGIBLE = 1e-25  # responsibility below which a row is left out of a component's full covariance
BLOCK, PARTS = 2**20, 3  # numbers of a block of components; the first part is a quarter of the columns, then as many
LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True, eq=False)
class Mixture(ABC):
    """V Gaussians in d dimensions. shares: (V,). means: (V, d).

    floor: what was added to each variance. steps: of EM. converged: True if before the last step.
    """

    shares: Tensor
    means: Tensor
    floor: float = field(kw_only=True)
    steps: int = field(default=0, kw_only=True)
    converged: bool = field(default=False, kw_only=True)

    @classmethod
    def fit(cls, x: Tensor, components: int, floor: float, seed: int) -> Self:
        """Fit by EM from a k-means clustering (scikit-learn's, drawn from `seed`).

        x: (N, d) float64 on the CPU. floor: added to each variance.
        Raises UserError if a covariance is not positive definite.
        Source: Bishop, Pattern Recognition and Machine Learning, 2006, section 9.2.2.
        """
        rows = cls.prepare(x)
        # As in scikit-learn: first an M step on the clusters, and convergence is of the likelihood before each M step.
        mixture = cls.maximize(_cluster(x, components, seed), rows, floor)
        bound, converged, steps = -math.inf, False, 0
        while steps < MOST_STEPS and not converged:
            responsibilities, likelihood = mixture.expect(rows)
            mixture = cls.maximize(responsibilities, rows, floor)
            converged = abs(likelihood - bound) < TOLERANCE
            bound, steps = likelihood, steps + 1
        return replace(mixture, steps=steps, converged=converged)

    def responsibilities(self, x: Tensor) -> Tensor:
        """Return P(component | x_i), (N, V), of rows x (N, d)."""
        return self.expect(self.prepare(x))[0]

    @staticmethod
    def prepare(x: Tensor) -> Tensor:
        """Return what both steps need of the rows x (N, d), once for all steps."""
        return x

    @abstractmethod
    def expect(self, rows: Tensor) -> tuple[Tensor, float]:
        """Return the responsibilities (N, V) and the mean log-likelihood: the E step."""

    @classmethod
    @abstractmethod
    def maximize(cls, responsibilities: Tensor, rows: Tensor, floor: float) -> Self:
        """Return the maximum-likelihood mixture for the responsibilities (N, V): the M step."""


@dataclass(frozen=True, eq=False)
class DiagonalMixture(Mixture):
    """Gaussians with diagonal covariances. variances: (V, d)."""

    variances: Tensor

    @staticmethod
    def prepare(x: Tensor) -> Tensor:
        """Return squares and values (N, 2 d), in which the log density of a diagonal Gaussian is linear."""
        return torch.cat([x.square(), x], 1)

    def expect(self, rows: Tensor) -> tuple[Tensor, float]:
        precisions = 1 / self.variances
        weights = torch.cat([-precisions / 2, self.means * precisions], 1)
        d = self.means.shape[1]
        constant = (self.means.square() * precisions + self.variances.log()).sum(1) + d * LOG_2PI
        return _normalize(torch.addmm(self.shares.log() - constant / 2, rows, weights.T))

    @classmethod
    def maximize(cls, responsibilities: Tensor, rows: Tensor, floor: float) -> Self:
        counts = responsibilities.sum(0) + TINY
        squares, means = ((responsibilities.T @ rows) / counts[:, None]).chunk(2, 1)
        variances = squares - means.square() + floor
        if not (variances > 0).all():
            raise UserError(
                f"no mixture of {len(counts)} Gaussians fits: a variance is below 0 with a floor of {floor:g}"
            )
        return cls(counts / counts.sum(), means, variances, floor=floor)


@dataclass(frozen=True, eq=False)
class FullMixture(Mixture):
    """Gaussians with full covariances. factors: (V, d, d) upper triangular, with precision = factor factor'."""

    factors: Tensor

    def expect(self, rows: Tensor) -> tuple[Tensor, float]:
        """Return responsibilities (N, V) and the mean log-likelihood. O(N V d^2), far less for narrow components."""
        return _normalize(self._log_joint(rows).T.contiguous())

    @classmethod
    def maximize(cls, responsibilities: Tensor, rows: Tensor, floor: float) -> Self:
        counts = responsibilities.sum(0) + TINY
        means = (responsibilities.T @ rows) / counts[:, None]
        covariances = torch.empty(len(means), rows.shape[1], rows.shape[1], dtype=rows.dtype)
        for v, (mean, share) in enumerate(zip(means, responsibilities.T, strict=True)):
            near = (share > NEGLIGIBLE).nonzero()[:, 0]
            apart = rows[near] - mean
            torch.mm((apart * share[near, None]).T, apart, out=covariances[v])
        covariances /= counts[:, None, None]
        covariances.diagonal(dim1=1, dim2=2).add_(floor)
        with threads(1):
            lower, failed = torch.linalg.cholesky_ex(covariances)
            if failed.any():
                size = f"a covariance of {len(means)} Gaussians"
                raise UserError(f"{size} is not positive definite with a floor of {floor:g}")
            unit = torch.eye(rows.shape[1], dtype=rows.dtype).expand_as(lower)
            factors = torch.linalg.solve_triangular(lower, unit, upper=False).mT
        return cls(counts / counts.sum(), means, factors, floor=floor)

    def _log_joint(self, x: Tensor) -> Tensor:
        """Return ln (share times density) (V, N), or an upper bound that is negligible beside the row's highest.

        Squares of the distance are added a few columns of the factors at a time; a component that is then already out
        of a row's reach needs no more of them.
        """
        d = x.shape[1]
        parts = list(pairwise(sorted({0, *(d >> shift for shift in range(PARTS)), d})))
        constant = self.shares.log() + self.factors.diagonal(dim1=1, dim2=2).log().sum(1) - d / 2 * LOG_2PI
        logs = constant[:, None] - self._squares(x, *parts[0]) / 2
        likely = logs.argmax(0)
        exact = torch.empty(len(x), dtype=x.dtype)
        for v in likely.unique().tolist():
            rows = (likely == v).nonzero()[:, 0]
            exact[rows] = self._complete(v, x[rows], parts[1:], logs[v, rows], None)
        reach = exact + SMALLEST
        for v in range(len(logs)):
            rows = (logs[v] >= reach).nonzero()[:, 0]
            logs[v, rows] = self._complete(v, x[rows], parts[1:], logs[v, rows], reach[rows])
        return logs

    def _squares(self, x: Tensor, first: int, last: int) -> Tensor:
        """Return (V, N), the squared distances in some columns of the factors, which are 0 below the last one."""
        n, columns = len(x), last - first
        squares = torch.empty(len(self.means), n, dtype=x.dtype)
        for block in torch.arange(len(squares)).split(max(BLOCK // (n * columns), 1)):
            factors = self.factors[block[0] : block[-1] + 1, :last, first:last]
            offsets = (self.means[block, None, :last] @ factors)[:, 0]
            apart = torch.baddbmm(offsets[:, None], x[None, :, :last].expand(len(block), -1, -1), factors, beta=-1)
            squares[block] = apart.square_().sum(2)
        return squares

    def _complete(
        self, v: int, x: Tensor, parts: Sequence[tuple[int, int]], logs: Tensor, reach: Tensor | None
    ) -> Tensor:
        """Return the logarithms (n,) of component v for rows x (n, d) with these parts; out of reach as they are."""
        logs, rows = logs.clone(), torch.arange(len(x))
        apart = x - self.means[v]
        for first, last in parts:
            if not len(rows):
                break
            logs[rows] -= (apart[rows, :last] @ self.factors[v, :last, first:last]).square_().sum(1) / 2
            rows = rows if reach is None else rows[logs[rows] >= reach[rows]]
        return logs


def _cluster(x: Tensor, components: int, seed: int) -> Tensor:
    """Return the clusters (N, V), one-hot, of scikit-learn's k-means, drawn from `seed`."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    # One thread: with several, sums depend on the order in which threads finish, and results are not reproducible.
    with python_warnings.catch_warnings(), threadpool_limits(1):
        python_warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than components
        labels = KMeans(components, n_init=1, random_state=seed).fit(x.numpy()).labels_
    return torch.nn.functional.one_hot(torch.from_numpy(labels).long(), components).to(x)


def _normalize(logs: Tensor) -> tuple[Tensor, float]:
    """Return responsibilities (N, V) and the mean log-likelihood. logs: (N, V) of the joint densities, overwritten."""
    top = logs.amax(1, keepdim=True)
    joint = logs.sub_(top).clamp_min_(SMALLEST).exp_()
    total = joint.sum(1, keepdim=True)
    likelihood = float((total.log() + top).mean())
    return joint.div_(total), likelihood
