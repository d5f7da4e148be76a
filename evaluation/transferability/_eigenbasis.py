"""Eigenvectors of a symmetric matrix, no more of them than are asked for."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from evaluation.transferability._threads import one_blas_thread

DIRECT = 300  # up to this order a full eigendecomposition is as fast
SHARE = 4  # fewer than 1 / SHARE of the eigenvectors are computed separately


class Eigenbasis(Protocol):
    """A = V diag(values) V', A (D, D), values (D,) ascending."""

    values: Tensor

    def coordinates(self, b: Tensor) -> Tensor:
        """Return V' b of b (D, K)."""

    def leading(self, k: int) -> Tensor:
        """Return the eigenvectors (D, k) of the largest values, ascending."""


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
        return self.small.T @ self._turned(b, "T")

    def leading(self, k: int) -> Tensor:
        n = len(self.main)
        if k * SHARE > n:
            return self._turned(self.small[:, n - k :], "N")
        if k == 0:
            return torch.zeros(n, 0, dtype=torch.float64)
        from scipy.linalg import eigh_tridiagonal

        wanted = {"select": "i", "select_range": (n - k, n - 1), "lapack_driver": "stemr"}
        with one_blas_thread():
            vectors = eigh_tridiagonal(self.main, self.beside, **wanted)[1]
        return self._turned(torch.from_numpy(vectors), "N")

    def _turned(self, b: Tensor, side: str) -> Tensor:
        """Return Q b ("N") or Q' b ("T")."""
        from scipy.linalg import lapack

        out = np.array(b.numpy(), order="F")
        work = 64 * max(out.shape[1], 64)
        with one_blas_thread():
            out[1:] = lapack.dormqr("L", side, self.reflectors, self.factors, out[1:], lwork=work)[0]
        return torch.from_numpy(out)


def eigenbasis_of(matrix: Tensor) -> Eigenbasis:
    """Decompose a symmetric (D, D) float64 matrix; large ones on the CPU only to tridiagonal form at first."""
    if matrix.device.type != "cpu" or len(matrix) <= DIRECT:
        return Dense(*torch.linalg.eigh(matrix))
    return Tridiagonal.of(matrix)
