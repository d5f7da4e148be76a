"""PACTran: a PAC-Bayesian bound on the error of a linear classifier, with Gaussian weights."""

import math

import torch
from torch import Tensor

from evaluation.transferability.base import Sample, Score
from sslkit.numerics.lbfgs import Axes, begin, minimise, softmax_loss
from sslkit.numerics.logistic import DEFAULT_ITER
from sslkit.options.ranges import Positive

TOL = 1e-5  # of the fitted objective, relative; 1e-7 moves the score by 1e-6 of itself and takes twice as long


def classifier(sample: Sample, strength: float) -> tuple[float, Tensor, bool]:
    """Least mean cross-entropy + |W|^2 / (2 strength N), its probabilities (N, C), and whether it was reached.

    Of the centred features on their principal axes, whose decomposition other metrics share.
    """
    small, shares = sample.compact, sample.moments.shares
    if not small.scatter.rank:
        return float(torch.special.entr(shares).sum()), shares.expand(len(sample), -1), True
    x = small.principal_coordinates(small.scatter.rank)
    moments = torch.cat([x.square().mean(0), x.new_ones(1)])
    axes = Axes(x, moments, x.new_zeros(x.shape[1]), torch.eye(0), torch.float64)
    loss = softmax_loss(sample.labels)
    state = begin(axes, loss, x.new_zeros(len(shares), len(moments)))
    least = minimise(axes, loss, state, 1 / (strength * len(x)), TOL, DEFAULT_ITER)
    return least.value, state.logits.softmax(1), least.gap <= TOL


def score(sample: Sample, *, strength: Positive = 1.0, variance: Positive = 1.0) -> Score:
    """- (L + C variance / (2 strength N) ln(H strength N / (D C))), L the loss of a ridge classifier, H its curvature.

    L is the least mean cross-entropy + |W|^2 / (2 strength N) of a softmax on the centred features, H the sum over all
    weights of its second derivatives, N times the mean cross-entropy's and once the penalty's, as in the authors' code.
    strength, variance: lambda sigma_0^2 / N and D sigma_0^2 of the prior; each 10, 1 or 0.1 in the authors' code.
    Range: unbounded. Higher is better. Cost: some 100 products of (N, D) and (D, C).
    Source: Ding et al., PACTran: PAC-Bayesian Metrics for Estimating the Transferability of Pretrained Models to
    Classification Tasks, ECCV 2022, the Gaussian prior. Their features are centred by the H-score before it.
    Not for: comparing scores of different strength, and models whose features differ in scale: the prior's variance is
    one number for all, so that larger features are penalised less.
    """
    n, c = len(sample), sample.n_classes
    x = sample.features - sample.moments.mean
    x[:, ~sample.moments.varies] = 0
    loss, p, converged = classifier(sample, strength)
    d, unsure = x.shape[1], (p - p.square()).sum(1)
    curvature = float((x.square().sum(1) + 1) @ unsure) + d * c / (strength * n)
    flatness = math.log(curvature * strength * n / (d * c))  # of at least 1: the authors' 1e-10 is not needed
    value = -(loss + c * variance / (2 * strength * n) * flatness)
    warnings = () if converged else ("the classifier did not converge",)
    return Score(value, {"loss": loss, "curvature": curvature}, warnings)
