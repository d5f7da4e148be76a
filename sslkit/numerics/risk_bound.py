"""The terms of a bound on the error of a classifier of class means, from views of images and their labels.

Source: theorem IV.1 (eq. 8) of Song et al. 2024, arXiv 2407.13541: the cross entropy of the classifier whose weights
are the class means is at most L_NCE + sum over i != j of mu_i^T mu_j + sqrt(Var) minus a constant.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sslkit.errors import UserError
from sslkit.numerics.diagnostics import unit_rows


@dataclass(frozen=True)
class RiskBound:
    """Both sides of eq. 8 without its constant, which the paper does not give. Features have unit length.

    risk: cross entropy of the softmax of f(x)^T mu_k, mu_k the mean of class k.
    contrast: L_NCE - log Q, with all views of other images as the Q negatives: minus the mean of f(x)^T f(x+), plus the
    mean of log(mean over negatives of exp(f(x)^T f(x-))). Low where views of an image are close (aggregation of views)
    and images are not.
    separation: sum over i != j of mu_i^T mu_j; low where classes are apart.
    spread: root of the mean squared distance of a feature to its class mean, each class weighted equally.
    """

    risk: float
    contrast: float
    separation: float
    spread: float

    @property
    def bound(self) -> float:
        """The sum of the three terms."""
        return self.contrast + self.separation + self.spread


def risk_bound(first: Any, second: Any, labels: Any) -> RiskBound:
    """The terms of eq. 8 on two views of the same N images; (2 N)^2 products are held in float64.

        risk_bound(z1, z2, y).bound

    first, second: (N, D) features of the two views, normalised here. labels: (N,) integers.
    Raises UserError for other shapes, fewer than two classes, and features that are not finite.
    """
    z, y = _check_views(first, second, labels)
    n = len(y)
    means = torch.stack([z[:, y == label].flatten(0, 1).mean(0) for label in range(int(y.max()) + 1)])
    distances = (z - means[y]).square().sum(2).mean(0)  # (N,) of an image's views
    spread = torch.stack([distances[y == label].mean() for label in range(len(means))]).mean().sqrt()
    products = means @ means.T
    scores = (z @ means.T).log_softmax(2)
    risk = -scores[:, torch.arange(n), y].mean()
    rows = z.flatten(0, 1)
    image = torch.arange(n).repeat(2)
    similar = (rows @ rows.T).masked_fill(image[:, None] == image, -torch.inf)
    negatives = similar.logsumexp(1).mean() - torch.tensor(2.0 * (n - 1), dtype=torch.float64).log()
    contrast = negatives - (z[0] * z[1]).sum(1).mean()
    return RiskBound(risk.item(), contrast.item(), (products.sum() - products.trace()).item(), spread.item())


def _check_views(first: Any, second: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """(2, N, D) unit rows in float64, and (N,) labels numbered from 0."""
    first_view, other = (torch.as_tensor(view) for view in (first, second))
    names, y = torch.as_tensor(labels).unique(return_inverse=True)
    if first_view.dim() != 2 or first_view.shape != other.shape or y.shape != first_view.shape[:1]:
        shapes = f"{tuple(first_view.shape)}, {tuple(other.shape)} and {tuple(y.shape)}"
        raise UserError(f"risk_bound needs two views (N, D) of the same images and (N,) labels, got {shapes}")
    if len(names) < 2:
        raise UserError("risk_bound needs at least two classes")
    z = torch.stack([unit_rows(first_view), unit_rows(other)])
    if not z.isfinite().all():
        raise UserError("features must be finite")
    return z, y
