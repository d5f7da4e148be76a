"""A mixture of Gaussians with diagonal covariances, fitted by EM: scikit-learn's, step for step, as matrix products."""

import math
import warnings as python_warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from sslkit.errors import UserError

MOST_STEPS, TOLERANCE = 100, 1e-3  # scikit-learn's: of EM, and of the mean log-likelihood's last change
SMALLEST = -600.0  # logarithm; below e^-708 numbers are denormal, and products of them take five times as long
TINY = 10 * torch.finfo(torch.float64).eps  # minimum rows of a component


@dataclass(frozen=True, eq=False)
class DiagonalMixture:
    """shares: (V,). means, variances: (V, d). steps: of EM. converged: True if before the last step."""

    shares: Tensor
    means: Tensor
    variances: Tensor
    steps: int = 0
    converged: bool = False

    def responsibilities(self, x: Tensor) -> Tensor:
        """Return P(component | x_i), (N, V), of rows x (N, d)."""
        return _normalized(self, _squares_and_rows(x))[0]


def fit_diagonal_mixture(x: Tensor, components: int, floor: float, seed: int) -> DiagonalMixture:
    """Fit by EM from a k-means clustering (scikit-learn's, drawn from `seed`).

    x: (N, d) float64 on the CPU. floor: added to each variance.
    Source: Bishop, Pattern Recognition and Machine Learning, 2006, section 9.2.2, diagonal covariances.
    """
    rows = _squares_and_rows(x)
    first = clustered(x, components, seed)
    mixture, bound, converged, steps = _maximized(first, rows, floor), -math.inf, False, 0
    while steps < MOST_STEPS and not converged:
        responsibilities, new = _normalized(mixture, rows)
        mixture = _maximized(responsibilities, rows, floor)
        converged = abs(new - bound) < TOLERANCE
        bound, steps = new, steps + 1
    return DiagonalMixture(mixture.shares, mixture.means, mixture.variances, steps, converged)


def clustered(x: Tensor, components: int, seed: int) -> Tensor:
    """Return the clusters (N, V), one-hot, of scikit-learn's k-means, drawn from `seed`."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    # One thread: with several, sums depend on the order in which threads finish, and results are not reproducible.
    with python_warnings.catch_warnings(), threadpool_limits(1):
        python_warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than components
        labels = KMeans(components, n_init=1, random_state=seed).fit(x.numpy()).labels_
    return torch.nn.functional.one_hot(torch.from_numpy(labels).long(), components).to(x)


def normalized(logs: Tensor) -> tuple[Tensor, float]:
    """Return responsibilities (N, V) and the mean log-likelihood. logs: (N, V) of the joint densities, overwritten."""
    top = logs.amax(1, keepdim=True)
    joint = logs.sub_(top).clamp_min_(SMALLEST).exp_()
    total = joint.sum(1, keepdim=True)
    likelihood = float((total.log() + top).mean())
    return joint.div_(total), likelihood


def _squares_and_rows(x: Tensor) -> Tensor:
    """Return squares and values (N, 2 d), in which the log density of a diagonal Gaussian is linear."""
    return torch.cat([x.square(), x], 1)


def _normalized(mixture: DiagonalMixture, rows: Tensor) -> tuple[Tensor, float]:
    """Return the responsibilities (N, V) and the mean log-likelihood."""
    precisions = 1 / mixture.variances
    weights = torch.cat([-precisions / 2, mixture.means * precisions], 1)
    d = mixture.means.shape[1]
    constant = (mixture.means.square() * precisions + mixture.variances.log()).sum(1) + d * math.log(2 * math.pi)
    logs = torch.addmm(mixture.shares.log() - constant / 2, rows, weights.T)
    return normalized(logs)


def _maximized(responsibilities: Tensor, rows: Tensor, floor: float) -> DiagonalMixture:
    """Return the maximum-likelihood mixture for the responsibilities (N, V)."""
    counts = responsibilities.sum(0) + TINY
    moments = (responsibilities.T @ rows) / counts[:, None]
    squares, means = moments.chunk(2, 1)
    variances = squares - means.square() + floor
    if not (variances > 0).all():
        raise UserError(f"no mixture of {len(counts)} Gaussians fits: a variance is below 0 with a floor of {floor:g}")
    return DiagonalMixture(counts / counts.sum(), means, variances)
