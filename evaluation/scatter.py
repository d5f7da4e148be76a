"""Sums over the rows of a sample that most transferability metrics are made of: computed once, shared by all."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evaluation.eigenbasis import Diagonal, Eigenbasis, eigenbasis

if TYPE_CHECKING:
    from evaluation.transferability.base import Sample

PANEL = 256  # columns of a Gram made at a time


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """First two moments of each class; O(N D).

    counts: (C,) float64. means: (C, D). variances: (C, D), ddof 0.
    """

    counts: Tensor
    means: Tensor
    variances: Tensor

    @classmethod
    def of(cls, sample: "Sample") -> "ClassMoments":
        """Two passes over the blocks: the variances are about the means, so a large offset costs no digits."""
        y, c = labels_or_one(sample)
        counts = torch.bincount(y, minlength=c).double()
        means = torch.zeros(c, sample.x.shape[1], dtype=torch.float64, device=sample.device)
        squares = torch.zeros_like(means)
        for rows, x in sample.blocks():
            means.index_add_(0, y[rows], x)
        means /= counts[:, None]
        for rows, x in sample.blocks():
            squares.index_add_(0, y[rows], x.sub_(means[y[rows]]).square_())
        return cls(counts, means, squares / counts[:, None])

    @property
    def n(self) -> float:
        return float(self.counts.sum())

    @property
    def shares(self) -> Tensor:
        """(C,) pi_c = n_c / N."""
        return self.counts / self.counts.sum()

    @property
    def mean(self) -> Tensor:
        """(D,) of all rows."""
        return self.shares @ self.means

    @property
    def column_variances(self) -> Tensor:
        """(D,) of all rows, ddof 0."""
        return self.shares @ (self.variances + (self.means - self.mean).square())

    @property
    def spread(self) -> Tensor:
        """(C, D) sqrt(n_c) (mu_c - m): spread' spread is the between-class scatter."""
        return self.counts.sqrt()[:, None] * (self.means - self.mean)

    @property
    def products(self) -> Tensor:
        """(D, C) sum_i (x_i - m) y_i' over all rows, y_i one-hot."""
        return (self.counts[:, None] * (self.means - self.mean)).T

    def moved(self, shift: Tensor) -> "ClassMoments":
        return replace(self, means=self.means + shift)


@dataclass(frozen=True, eq=False)
class Scatter:
    """Sums of squares and products; one pass of O(N D^2).

    moments: of the same rows. within: (D, D) sum_i (x_i - mu_{y_i})(x_i - mu_{y_i})', not divided by N.
    diagonal: (D,) that of `total`, where the axes are known to be the principal ones.
    """

    moments: ClassMoments
    within: Tensor
    diagonal: Tensor | None = None

    @classmethod
    def of(cls, sample: "Sample") -> "Scatter":
        y, _ = labels_or_one(sample)
        moments = sample.moments
        d = sample.x.shape[1]
        within = torch.zeros(d, d, dtype=torch.float64, device=sample.device)
        for rows, x in sample.blocks():
            add_upper_gram(within, x.sub_(moments.means[y[rows]]))
        return cls(moments, mirror_upper(within), sample.diagonal)

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
        """Of `total`."""
        return eigenbasis(self.total) if self.diagonal is None else Diagonal.of(self.diagonal)

    @cached_property
    def values(self) -> Tensor:
        """(D,) eigenvalues of `total`, ascending, 0 up to `rounding`."""
        values = self.eigenbasis.values
        return values.masked_fill(values <= self.rounding, 0)

    @property
    def varies(self) -> Tensor:
        """(D,) bool: the eigenvalues above rounding, of directions in which the rows differ."""
        return self.values > self.values[-1] * max(self.n, len(self.values)) * torch.finfo(torch.float64).eps

    @property
    def rounding(self) -> float:
        """Sum of squares that equal rows may show because their mean is rounded: (n eps)^2 of that of the mean."""
        return self.n * (self.n * torch.finfo(torch.float64).eps) ** 2 * float(self.moments.mean.square().sum())

    def moved(self, shift: Tensor) -> "Scatter":
        """Classes that move rigidly keep their within-class scatter."""
        return Scatter(self.moments.moved(shift), self.within)


def add_upper_gram(gram: Tensor, x: Tensor) -> None:
    """gram += X'X on and above the diagonal (and a little below it): half the products, by panels of columns."""
    for start in range(0, len(gram), PANEL):
        columns = slice(start, start + PANEL)
        gram[columns, start:].addmm_(x[:, columns].T, x[:, start:])


def mirror_upper(gram: Tensor) -> Tensor:
    """The symmetric matrix of which `gram` has the upper triangle; in place."""
    for start in range(0, len(gram), PANEL):
        stop = start + PANEL
        corner = gram[start:stop, start:stop].triu(1)
        gram[start:stop, start:stop].triu_().add_(corner.T)
        gram[stop:, start:stop] = gram[start:stop, stop:].T
    return gram


def labels_or_one(sample: "Sample") -> tuple[Tensor, int]:
    """(N,) labels and C; all rows one class where there are no labels."""
    if sample.y is not None:
        return sample.y, sample.n_classes
    return torch.zeros(len(sample), dtype=torch.int64, device=sample.device), 1


def compacted(sample: "Sample") -> tuple[Tensor, Tensor, Tensor]:
    """Coordinates (N, r) of the rows, r <= N, on their principal axes, those of (1, ..., 1), and the total scatter
    along each axis, (r,).

    From the N x N Gram of the centred rows; the mean gets a direction of its own, along which nothing varies.
    """
    x = sample.features
    mean = x.mean(0)
    x -= mean
    values, vectors = torch.linalg.eigh(x @ x.T)
    kept = values > values[-1] * len(x) * torch.finfo(torch.float64).eps
    values = values[kept]
    lengths, u = values.sqrt(), vectors[:, kept]
    inside = torch.stack([mean, torch.ones_like(mean)], 1)
    inside = (u / lengths).T @ (x @ inside)  # (r, 2): Q'm and Q'1, as Q = X'U / lengths
    rest = (mean @ mean - inside[:, 0] @ inside[:, 0]).clamp_min(0).sqrt()  # of the mean, outside the rows' span
    ones = (mean.sum() - inside[:, 1] @ inside[:, 0]) / rest if rest > 1e-12 * mean.norm() else rest * 0
    rows = torch.cat([u * lengths + inside[:, 0], rest.expand(len(x), 1)], 1)
    return rows, torch.cat([inside[:, 1], ones[None]]), torch.cat([values, values.new_zeros(1)])
