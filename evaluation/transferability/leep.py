"""LEEP: log likelihood of the labels under the source classifier's class probabilities."""

import torch
from torch import Tensor

from evaluation.transferability.base import BLOCK, Sample, Score

NEEDS = ("source_probs",)


def expected_empirical_predictions(p: Tensor, y: Tensor) -> Tensor:
    """Return sum_z P(y_i | z) p_iz (N,), P(y | z) from the empirical joint J = Y'p / N (Nguyen et al. 2020, eq. 2).

    p: (N, S), rows sum to 1. y: (N,) int64 from 0. Source classes without mass are left out.
    """
    p = p.double()
    joint = p.new_zeros(int(y.max()) + 1, p.shape[1]).index_add_(0, y, p)
    mass = joint.sum(0)
    conditional = torch.where(mass > 0, joint / mass, 0)
    step = max(BLOCK // p.shape[1], 1)  # the rows P(y_i | .) of all images would be a second p
    blocks = zip(y.split(step), p.split(step), strict=True)
    return torch.cat([(conditional[labels] * rows).sum(1) for labels, rows in blocks])


def leep_terms(p: Tensor, y: Tensor, log: bool = True) -> Tensor:
    """Return the terms (N,) whose mean is LEEP."""
    predictions = expected_empirical_predictions(p, y)
    return predictions.log() if log else predictions


def leep(p: Tensor, y: Tensor, log: bool = True) -> float:
    """Return mean_i log sum_z P(y_i | z) p_iz; without the logarithm if `log` is False."""
    return float(leep_terms(p, y, log).mean())


def score(sample: Sample, *, log: bool = True) -> Score:
    """mean_i log sum_z P(y_i | z) p_iz, P(y | z) = J_yz / sum_y J_yz, J = Y'p / N; natural logarithm.

    log: False takes the mean without the logarithm, as the codes of SFDA and ETran do, which changes the ranking.
    Range: below or at 0 (log), 0 to 1 (without). Higher is better. Cost: O(N S); features are not read.
    Source: Nguyen et al., LEEP, ICML 2020, eq. 1 and 2.
    Not for: models without a source classifier (self-supervised ones: nleep), and heads of different numbers of
    classes, which it favours by number.
    """
    terms = leep_terms(sample.source_probs, sample.labels, log)
    used = int((sample.source_probs.sum(0) > 0).sum())
    return Score(float(terms.mean()), {"source_classes": used}, terms=terms)
