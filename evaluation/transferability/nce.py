"""NCE: negative conditional entropy of the labels given the source classifier's decisions."""

import torch
from torch import Tensor

from evaluation.transferability.base import Sample, Score

NEEDS = ("source_probs",)


def nce_terms(z: Tensor, y: Tensor) -> Tensor:
    """Return the empirical log P(y_i | z_i) (N,). z, y: (N,) int64 from 0."""
    _, cell, joint = torch.unique(z * (y.max() + 1) + y, return_inverse=True, return_counts=True)
    return (joint[cell] / torch.bincount(z)[z].double()).log()


def nce(z: Tensor, y: Tensor) -> float:
    """Return -H(Y | Z) = sum_{y,z} P(y, z) log P(y | z)."""
    return float(nce_terms(z, y).mean())


def score(sample: Sample) -> Score:
    """-H(Y | Z) = sum_{y,z} P(y, z) log P(y | z), z_i = argmax_z p_iz the source's decision (ties: the first).

    Range: -log C to 0. Higher is better. Cost: O(N S); features are not read.
    Source: Tran et al., Transferability and Hardness of Supervised Classification Tasks, ICCV 2019, eq. 6.
    Not for: models without a source classifier, or few images per decision: if every image has its own
    decision, the score is 0 for any labels.
    """
    z = sample.source_probs.argmax(1)
    terms = nce_terms(z, sample.labels)
    decisions = len(torch.unique(z))
    warnings = ()
    if 2 * decisions > len(z):
        warnings = (f"{len(z)} images have {decisions} different decisions of the source: near 0 whatever the labels",)
    return Score(float(terms.mean()), {"decisions": decisions}, warnings, terms)
