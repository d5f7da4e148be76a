"""A mixture of Gaussians with full covariances, fitted by EM: scikit-learn's, step for step, as large products."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from evaluation.transferability._diagonal_mixture import MOST_STEPS, TINY, TOLERANCE, clustered, normalized
from sslkit.errors import UserError

NEGLIGIBLE = 1e-25  # responsibility below which a row is left out of a component's covariance
BLOCK, PARTS = 2**21, 4  # numbers of a block of components and columns; parts of the columns


@dataclass(frozen=True, eq=False)
class FullMixture:
    """shares: (V,). means: (V, d). factors: (V, d, d) upper triangular, with precision = factor factor'.

    steps: of EM. converged: True if before the last step.
    """

    shares: Tensor
    means: Tensor
    factors: Tensor
    steps: int = 0
    converged: bool = False

    def responsibilities(self, x: Tensor) -> Tensor:
        """Return P(component | x_i), (N, V), of rows x (N, d)."""
        return _normalized(self, x)[0]


def fit_full_mixture(x: Tensor, components: int, floor: float, seed: int) -> FullMixture:
    """Fit by EM from a k-means clustering (scikit-learn's, drawn from `seed`).

    x: (N, d) float64 on the CPU. floor: added to each variance.
    Raises UserError if a covariance is not positive definite.
    Source: Bishop, Pattern Recognition and Machine Learning, 2006, section 9.2.2.
    """
    first = clustered(x, components, seed)
    mixture, bound, converged, steps = _maximized(first, x, floor), -math.inf, False, 0
    while steps < MOST_STEPS and not converged:
        responsibilities, new = _normalized(mixture, x)
        mixture = _maximized(responsibilities, x, floor)
        converged = abs(new - bound) < TOLERANCE
        bound, steps = new, steps + 1
    return FullMixture(mixture.shares, mixture.means, mixture.factors, steps, converged)


def _normalized(mixture: FullMixture, x: Tensor) -> tuple[Tensor, float]:
    """Return the responsibilities (N, V) and the mean log-likelihood. O(N V d^2)."""
    n, d = x.shape
    logs = torch.zeros(n, len(mixture.means), dtype=x.dtype)
    step = max(BLOCK * PARTS // (n * d), 1)
    ends = sorted({d * part // PARTS for part in range(PARTS + 1)})
    for start in range(0, len(mixture.means), step):
        block = slice(start, start + step)
        factors, offsets = mixture.factors[block], (mixture.means[block, None] @ mixture.factors[block])[:, 0]
        for first, last in pairwise(ends):  # of the upper triangular factors, without most of the zeros
            part = factors[:, :last, first:last].transpose(0, 1).reshape(last, -1)
            apart = torch.addmm(offsets[:, first:last].flatten(), x[:, :last], part, beta=-1)
            logs[:, block] -= apart.square_().view(n, -1, last - first).sum(2)
    logs *= 0.5
    logs += mixture.shares.log() + mixture.factors.diagonal(dim1=1, dim2=2).log().sum(1) - d / 2 * math.log(2 * math.pi)
    return normalized(logs)


def _maximized(responsibilities: Tensor, x: Tensor, floor: float) -> FullMixture:
    """Return the maximum-likelihood mixture for the responsibilities (N, V)."""
    counts = responsibilities.sum(0) + TINY
    means = (responsibilities.T @ x) / counts[:, None]
    covariances = torch.empty(len(means), x.shape[1], x.shape[1], dtype=x.dtype)
    for v, (mean, share) in enumerate(zip(means, responsibilities.T, strict=True)):
        rows = (share > NEGLIGIBLE).nonzero()[:, 0]
        apart = x[rows] - mean
        torch.mm((apart * share[rows, None]).T, apart, out=covariances[v])
    covariances /= counts[:, None, None]
    covariances.diagonal(dim1=1, dim2=2).add_(floor)
    lower, failed = torch.linalg.cholesky_ex(covariances)
    if failed.any():
        raise UserError(f"a covariance of {len(means)} Gaussians is not positive definite with a floor of {floor:g}")
    unit = torch.eye(x.shape[1], dtype=x.dtype).expand_as(lower)
    factors = torch.linalg.solve_triangular(lower, unit, upper=False).mT
    return FullMixture(counts / counts.sum(), means, factors)
