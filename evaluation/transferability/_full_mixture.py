"""A mixture of Gaussians with full covariances, fitted by EM: scikit-learn's, step for step, as large products."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from evaluation.transferability._diagonal_mixture import MOST_STEPS, SMALLEST, TINY, TOLERANCE, clustered, normalized
from evaluation.transferability._threads import threads
from sslkit.errors import UserError

NEGLIGIBLE = 1e-25  # responsibility below which a row is left out of a component's covariance
BLOCK, PARTS = 2**20, 3  # numbers of a block of components; the first part is a quarter of the columns, then as many
LOG_2PI = math.log(2 * math.pi)


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
    """Return the responsibilities (N, V) and the mean log-likelihood. O(N V d^2), far less for narrow components."""
    return normalized(_log_joint(mixture, x).T.contiguous())


def _log_joint(mixture: FullMixture, x: Tensor) -> Tensor:
    """Return ln (share times density) (V, N), or an upper bound that is negligible beside the row's highest.

    Squares of the distance are added a few columns of the factors at a time; a component that is then already out of a
    row's reach needs no more of them.
    """
    d = x.shape[1]
    parts = list(pairwise(sorted({0, *(d >> shift for shift in range(PARTS)), d})))
    constant = mixture.shares.log() + mixture.factors.diagonal(dim1=1, dim2=2).log().sum(1) - d / 2 * LOG_2PI
    logs = constant[:, None] - _squares(mixture, x, *parts[0]) / 2
    likely = logs.argmax(0)
    exact = torch.empty(len(x), dtype=x.dtype)
    for v in likely.unique().tolist():
        rows = (likely == v).nonzero()[:, 0]
        exact[rows] = _completed(mixture, v, x[rows], parts[1:], logs[v, rows], None)
    reach = exact + SMALLEST
    for v in range(len(logs)):
        rows = (logs[v] >= reach).nonzero()[:, 0]
        logs[v, rows] = _completed(mixture, v, x[rows], parts[1:], logs[v, rows], reach[rows])
    return logs


def _squares(mixture: FullMixture, x: Tensor, first: int, last: int) -> Tensor:
    """Return (V, N), the squared distances in some columns of the factors, which are 0 below the last one."""
    n, columns = len(x), last - first
    squares = torch.empty(len(mixture.means), n, dtype=x.dtype)
    for block in torch.arange(len(squares)).split(max(BLOCK // (n * columns), 1)):
        factors = mixture.factors[block[0] : block[-1] + 1, :last, first:last]
        offsets = (mixture.means[block, None, :last] @ factors)[:, 0]
        apart = torch.baddbmm(offsets[:, None], x[None, :, :last].expand(len(block), -1, -1), factors, beta=-1)
        squares[block] = apart.square_().sum(2)
    return squares


def _completed(
    mixture: FullMixture, v: int, x: Tensor, parts: Sequence[tuple[int, int]], logs: Tensor, reach: Tensor | None
) -> Tensor:
    """Return the logarithms (n,) of component v for rows x (n, d) with these parts; rows out of reach as they are."""
    logs, rows = logs.clone(), torch.arange(len(x))
    apart = x - mixture.means[v]
    for first, last in parts:
        if not len(rows):
            break
        logs[rows] -= (apart[rows, :last] @ mixture.factors[v, :last, first:last]).square_().sum(1) / 2
        rows = rows if reach is None else rows[logs[rows] >= reach[rows]]
    return logs


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
    with threads(1):
        lower, failed = torch.linalg.cholesky_ex(covariances)
    if failed.any():
        raise UserError(f"a covariance of {len(means)} Gaussians is not positive definite with a floor of {floor:g}")
    unit = torch.eye(x.shape[1], dtype=x.dtype).expand_as(lower)
    with threads(1):
        factors = torch.linalg.solve_triangular(lower, unit, upper=False).mT
    return FullMixture(counts / counts.sum(), means, factors)
