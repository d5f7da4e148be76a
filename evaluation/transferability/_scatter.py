"""Sums over the rows of a sample that most transferability metrics need, and eigenvectors of their scatter."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from evaluation.transferability._threads import one_blas_thread

PANEL = 256  # columns of a Gram made at a time
EPS = torch.finfo(torch.float64).eps
DIRECT = 300  # up to this order a full eigendecomposition is as fast
SHARE = 4  # fewer than 1 / SHARE of the eigenvectors are computed separately
CONSTANT = 1e-6  # columns whose std is below this share of the largest are left out


def mean_rounding(mean: Tensor, n: Tensor | float) -> Tensor:
    """Return the rounding error bound of a mean of n equal numbers: n eps |mean|.

    Deviations up to it count as 0.
    """
    return mean.abs() * n * EPS


def varying(std: Tensor, mean: Tensor, n: int) -> Tensor:
    """Return (D,) bool: the columns of n rows that vary by more than rounding, and not far less than the others."""
    return (std > CONSTANT * std.max()) & (std > mean_rounding(mean, n))


def by_class(y: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows `order` (N,) class by class, and (N,) the place of each in its class. y: (N,) int64 labels."""
    rows = order[y[order].argsort(stable=True)]
    counts = torch.bincount(y)
    return rows, torch.arange(len(y), device=y.device) - (counts.cumsum(0) - counts)[y[rows]]


def unit_of(variance: float) -> float:
    """Return the power of 100 next to a variance of features: the unit of constants made for a variance of about 1.

    From 0.1 to 10 it is 1, so that a metric is bit for bit the published one where that is sound; so it is for 0.
    """
    return 100.0 ** round(math.log(variance, 100)) if variance > 0 else 1.0


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """First two moments of each class; O(N D).

    counts: (C,) float64. means: (C, D). variances: (C, D), ddof 0.
    """

    counts: Tensor
    means: Tensor
    variances: Tensor

    def settle(self) -> "ClassMoments":
        """Return the moments with rounding-level variances set to 0, and one mean for constant columns."""
        noise = mean_rounding(self.means, self.counts[:, None]).square_()
        variances = self.variances.masked_fill(self.variances <= noise, 0)
        settled = replace(self, variances=variances)
        constant = ~settled.varies
        if not constant.any():
            return settled
        means = torch.where(constant, self.mean, self.means)
        return replace(self, means=means, variances=variances.masked_fill(constant, 0))

    @property
    def n(self) -> float:
        return float(self.counts.sum())

    @property
    def shares(self) -> Tensor:
        """(C,) pi_c = n_c / N."""
        return self.counts / self.counts.sum()

    @cached_property
    def mean(self) -> Tensor:
        """Mean (D,) of all rows; equal to the class means if these are equal."""
        return self.shares @ (self.means - self.means[0]) + self.means[0]

    @property
    def column_variances(self) -> Tensor:
        """Variances (D,) of all rows, ddof 0."""
        return self.shares @ (self.variances + (self.means - self.mean).square())

    @property
    def varies(self) -> Tensor:
        """(D,) bool: the columns that vary by more than rounding."""
        return self.column_variances > mean_rounding(self.mean, self.n).square()

    @property
    def spread(self) -> Tensor:
        """(C, D) sqrt(n_c) (mu_c - m): spread' spread is the between-class scatter."""
        return self.counts.sqrt()[:, None] * (self.means - self.mean)

    @property
    def products(self) -> Tensor:
        """(D, C) sum_i (x_i - m) y_i' over all rows, y_i one-hot."""
        return (self.counts[:, None] * (self.means - self.mean)).T

    def move(self, shift: Tensor) -> "ClassMoments":
        return replace(self, means=self.means + shift)


@dataclass(frozen=True, eq=False)
class Dense:
    """All eigenvectors. vectors: (D, D), as columns."""

    values: Tensor
    vectors: Tensor

    def coordinates(self, b: Tensor) -> Tensor:
        return self.vectors.T @ b

    def leading(self, k: int) -> Tensor:
        return self.vectors[:, len(self.values) - k :]


@dataclass(frozen=True, eq=False)
class Diagonal:
    """Eigenbasis of a diagonal matrix. values: ascending. order: (D,) the axis of each value."""

    values: Tensor
    order: Tensor

    @classmethod
    def of(cls, diagonal: Tensor) -> "Diagonal":
        return cls(*diagonal.sort(stable=True))

    def coordinates(self, b: Tensor) -> Tensor:
        return b[self.order]

    def leading(self, k: int) -> Tensor:
        return torch.eye(len(self.order)).to(self.values)[:, self.order[len(self.order) - k :]]


@dataclass(frozen=True, eq=False)
class Tridiagonal:
    """A = Q T Q', T = S diag(values) S' tridiagonal, V = Q S. The product Q S, half of a solver's time, is skipped.

    main, beside: (D,) and (D - 1,) diagonals of T. reflectors, factors: (D - 1, D - 1) and (D - 1,), LAPACK's form of
    Q, which keeps the first axis.
    """

    main: np.ndarray
    beside: np.ndarray
    reflectors: np.ndarray
    factors: np.ndarray

    @classmethod
    def of(cls, matrix: Tensor) -> "Tridiagonal":
        from scipy.linalg import lapack

        a = matrix.numpy().T  # symmetric: a view in LAPACK's order of columns
        work = int(lapack.dsytrd_lwork(len(a), lower=1)[0])
        with one_blas_thread():
            reduced, main, beside, factors, info = lapack.dsytrd(a, lower=1, lwork=work)
        if info:
            raise ValueError(f"LAPACK's dsytrd failed with {info}")
        return cls(main, beside, np.asfortranarray(reduced[1:, :-1]), factors)

    @cached_property
    def values(self) -> Tensor:
        from scipy.linalg import eigvalsh_tridiagonal

        with one_blas_thread():
            return torch.from_numpy(eigvalsh_tridiagonal(self.main, self.beside, lapack_driver="sterf"))

    @cached_property
    def small(self) -> Tensor:
        """Return S (D, D)."""
        from scipy.linalg import eigh_tridiagonal

        with one_blas_thread():
            return torch.from_numpy(eigh_tridiagonal(self.main, self.beside, lapack_driver="stevd")[1])

    def coordinates(self, b: Tensor) -> Tensor:
        return self.small.T @ self._turn(b, "T")

    def leading(self, k: int) -> Tensor:
        n = len(self.main)
        if k * SHARE > n:
            return self._turn(self.small[:, n - k :], "N")
        if k == 0:
            return torch.zeros(n, 0, dtype=torch.float64)
        from scipy.linalg import eigh_tridiagonal

        wanted = {"select": "i", "select_range": (n - k, n - 1), "lapack_driver": "stemr"}
        with one_blas_thread():
            vectors = eigh_tridiagonal(self.main, self.beside, **wanted)[1]
        return self._turn(torch.from_numpy(vectors), "N")

    def _turn(self, b: Tensor, side: str) -> Tensor:
        """Return Q b ("N") or Q' b ("T")."""
        from scipy.linalg import lapack

        out = np.array(b.numpy(), order="F")
        work = 64 * max(out.shape[1], 64)
        with one_blas_thread():
            out[1:] = lapack.dormqr("L", side, self.reflectors, self.factors, out[1:], lwork=work)[0]
        return torch.from_numpy(out)


# Of A = V diag(values) V', values ascending: coordinates(b) is V' b, leading(k) the last k columns of V.
Eigenbasis = Dense | Diagonal | Tridiagonal


def eigenbasis_of(matrix: Tensor) -> Eigenbasis:
    """Decompose a symmetric (D, D) float64 matrix; large ones on the CPU only to tridiagonal form at first."""
    if matrix.device.type != "cpu" or len(matrix) <= DIRECT:
        return Dense(*torch.linalg.eigh(matrix))
    return Tridiagonal.of(matrix)


@dataclass(frozen=True, eq=False)
class Scatter:
    """Sums of squares and products; one pass of O(N D^2).

    moments: of the same rows. within: (D, D) sum_i (x_i - mu_{y_i})(x_i - mu_{y_i})', not divided by N.
    diagonal: (D,) of `total`, if the axes are known to be the principal ones.
    """

    moments: ClassMoments
    within: Tensor
    diagonal: Tensor | None = None

    @property
    def n(self) -> float:
        return self.moments.n

    @property
    def between(self) -> Tensor:
        """(D, D) sum_c n_c (mu_c - m)(mu_c - m)'."""
        return self.moments.spread.T @ self.moments.spread

    @cached_property
    def total(self) -> Tensor:
        """(D, D) sum_i (x_i - m)(x_i - m)'."""
        return self.within + self.between

    @cached_property
    def eigenbasis(self) -> Eigenbasis:
        """Eigenbasis of `total`."""
        return eigenbasis_of(self.total) if self.diagonal is None else Diagonal.of(self.diagonal)

    @cached_property
    def values(self) -> Tensor:
        """(D,) eigenvalues of `total`, ascending, 0 up to `rounding`."""
        values = self.eigenbasis.values
        return values.masked_fill(values <= self.rounding, 0)

    @property
    def varies(self) -> Tensor:
        """(D,) bool: the eigenvalues above rounding."""
        return self.values > self.values[-1] * self.precision

    @property
    def rank(self) -> int:
        """Rank of the centred rows: the number of eigenvalues above rounding."""
        return int(self.varies.sum())

    @property
    def precision(self) -> float:
        """Relative error of a sum of squares, or of an eigenvalue, to the largest eigenvalue: max(n, D) eps."""
        return max(self.n, len(self.within)) * EPS

    @property
    def rounding(self) -> float:
        """Largest sum of squares of equal rows that is due to the rounding of their mean."""
        return self.n * float(mean_rounding(self.moments.mean, self.n).square().sum())

    @property
    def is_collapsed(self) -> bool:
        """True if all rows are equal up to rounding."""
        return float(self.total.trace()) <= self.rounding

    def move(self, shift: Tensor) -> "Scatter":
        """Return the scatter after a rigid shift of the classes, which keeps the within-class scatter."""
        return Scatter(self.moments.move(shift), self.within)


def add_upper_gram(gram: Tensor, x: Tensor) -> None:
    """Add X'X to gram on and above the diagonal (and a little below it): half the products, by panels of columns."""
    for start in range(0, len(gram), PANEL):
        columns = slice(start, start + PANEL)
        gram[columns, start:].addmm_(x[:, columns].T, x[:, start:])


def mirror_upper(gram: Tensor) -> Tensor:
    """Copy the upper triangle of `gram` to the lower one, in place."""
    for start in range(0, len(gram), PANEL):
        stop = start + PANEL
        corner = gram[start:stop, start:stop].triu(1)
        gram[start:stop, start:stop].triu_().add_(corner.T)
        gram[stop:, start:stop] = gram[start:stop, stop:].T
    return gram
