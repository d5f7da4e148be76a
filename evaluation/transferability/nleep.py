"""NLEEP: LEEP with a Gaussian mixture of the features instead of a source classifier."""

from typing import Annotated, Literal

import torch
from torch import Tensor

from evaluation.transferability._mixtures import DiagonalMixture, FullMixture, Mixture
from evaluation.transferability._scatter import Scatter
from evaluation.transferability.base import Sample, Score
from evaluation.transferability.leep import leep_terms
from sslkit.errors import UserError
from sslkit.options.ranges import Natural
from sslkit.options.settings import Limits

MIXTURES = {"full": FullMixture, "diag": DiagonalMixture}
FLOOR, RETRIES = 1e-6, 6  # of the variances, as a share of the mean one; each retry takes ten times the floor


def energy_dims(scatter: Scatter, energy: float) -> int:
    """Return the smallest number of axes with more than `energy` of the variance; 0 if all rows are equal."""
    values = scatter.values
    shares = values.flip(0).cumsum(0) / values.sum()
    return min(int((shares <= energy + scatter.precision).sum()) + 1, scatter.rank)


def fit_mixture(x: Tensor, components: int, covariance: str, seed: int) -> Mixture:
    """Fit a mixture of Gaussians. x: (N, d) float64. The floor is raised if a covariance is not positive definite."""
    unit = float(x.var(0, correction=0).mean())
    for retry in range(RETRIES + 1):
        try:
            return MIXTURES[covariance].fit(x, components, FLOOR * unit * 10**retry, seed)
        except UserError as error:
            failed = error
    raise UserError(f"nleep: no mixture of {components} Gaussians fits {x.shape[0]} x {x.shape[1]} features: {failed}")


def score(
    sample: Sample,
    *,
    log: bool = True,
    components_per_class: Natural = 5,
    covariance: Literal["full", "diag"] = "full",
    energy: Annotated[float, Limits(above=0, most=1)] = 0.8,
    max_dims: Natural | None = None,
) -> Score:
    """LEEP of p_iv = P(component v | x_i), of a mixture of Gaussians on the principal axes with 80% of the variance.

    log: False takes the mean of the predictions without the logarithm, as the codes of SFDA, PED and ETran do.
    components_per_class: times C components, at most N // 2. covariance: "full" or "diag", which is far quicker.
    energy: share of the variance on the axes. max_dims: maximum number of axes; None: no limit.
    Range: below or at 0 (log), 0 to 1 (without). Higher is better. Cost: O(N D^2 + D^3), shared, and for each step of
    the mixture O(N V d^2) (full) or O(N V d) (diag), V components on d axes.
    Source: Li et al., Ranking Neural Checkpoints, CVPR 2021, sec. 3.3.
    Not for: few images per class: with as many components as images every score is perfect. The mixture is a local
    optimum: scores of two seeds differ by 0.003 to 0.03.
    """
    y = sample.labels
    dims = min(energy_dims(sample.compact.scatter, energy), max_dims or sample.dim)
    if dims == 0:
        p = torch.ones(len(y), 1, dtype=torch.float64, device=y.device)
        terms = leep_terms(p, y, log)
        return Score(float(terms.mean()), {"dims": 0}, ("all rows of features are equal",), terms)
    x = sample.principal_coordinates(dims).cpu()
    components = max(min(components_per_class * sample.n_classes, len(y) // 2), 1)
    seed = int(torch.randint(2**31 - 1, (1,), generator=sample.generator("nleep")))
    mixture = fit_mixture(x, components, covariance, seed)
    terms = leep_terms(mixture.responsibilities(x).to(y.device), y, log)
    diagnostics = {"dims": dims, "components": components, "iterations": mixture.steps, "floor": mixture.floor}
    warnings = []
    if components < components_per_class * sample.n_classes:
        warnings.append(f"{len(y)} images are few for {components_per_class} components a class: half of them taken")
    if not mixture.converged:
        warnings.append(f"the mixture had not converged after {mixture.steps} steps")
    return Score(float(terms.mean()), diagnostics, tuple(warnings), terms)
