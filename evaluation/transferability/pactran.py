"""PACTran: a PAC-Bayesian bound on the error of a linear classifier, with Gaussian weights."""

import math

import torch
from torch import Tensor

from evaluation.learners.logistic import fit_logistic
from evaluation.transferability.base import Sample, Score
from sslkit.errors import UserError

TOL = 1e-5  # of the fitted objective, relative; 1e-7 moves the score by 1e-6 of itself and takes twice as long


def classifier(x: Tensor, y: Tensor, shares: Tensor, strength: float) -> tuple[float, Tensor, bool]:
    """Least mean cross-entropy + |W|^2 / (2 strength N), its probabilities (N, C), and whether it was reached.

    x: (N, D) centred. shares: (C,) of the classes, which are the probabilities if the rows of x are all 0.
    """
    if not x.any():
        return float(torch.special.entr(shares).sum()), shares.expand(len(x), -1), True
    probe = fit_logistic(x.cpu(), y.cpu(), strength, tol=TOL)
    logits = torch.from_numpy(probe.scores(x.cpu())).to(x)
    return probe.objective / (strength * len(x)), logits.softmax(1), probe.converged


def score(sample: Sample, *, strength: float = 1.0, variance: float = 1.0) -> Score:
    """- (L + C variance / (2 strength N) ln(H strength N / (D C))), L the loss of a ridge classifier, H its curvature.

    L is the least mean cross-entropy + |W|^2 / (2 strength N) of a softmax on the centred features, H the sum over all
    weights of its second derivatives, N times the mean cross-entropy's and once the penalty's, as in the authors' code.
    strength, variance: lambda sigma_0^2 / N and D sigma_0^2 of the prior; each 10, 1 or 0.1 in the authors' code.
    Range: unbounded. Higher is better. Cost: some 100 products of (N, D) and (D, C).
    Source: Ding et al., PACTran: PAC-Bayesian Metrics for Estimating the Transferability of Pretrained Models to
    Classification Tasks, ECCV 2022, the Gaussian prior. Their features are centred by the H-score before it.
    Not for: comparing scores of different strength, and features of very different scale, which change the penalty.
    """
    for name, value in (("strength", strength), ("variance", variance)):
        if not 0 < value < math.inf:
            raise UserError(f"pactran: {name}={value:g} must be above 0")
    y, n, c = sample.labels, len(sample), sample.n_classes
    x = sample.features - sample.moments.mean
    x[:, ~sample.moments.varies] = 0
    loss, p, converged = classifier(x, y, sample.moments.shares, strength)
    d, unsure = x.shape[1], (p - p.square()).sum(1)
    curvature = float((x.square().sum(1) + 1) @ unsure) + d * c / (strength * n)
    flatness = math.log(curvature * strength * n / (d * c) + 1e-10)
    said = () if converged else ("the classifier did not converge",)
    return Score(-(loss + c * variance / (2 * strength * n) * flatness), {"loss": loss, "curvature": curvature}, said)
