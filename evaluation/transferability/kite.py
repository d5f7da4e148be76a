"""KITE: how well features agree with the labels, over how well they agree with those of an untrained network."""

import torch
from torch import Tensor

from evaluation.transferability._scatter import add_upper_gram, mirror_upper
from evaluation.transferability.base import Sample, Score
from sslkit.errors import UserError

NEEDS = ("features", "untrained")
TAKES_NUMBERS = True


def cka(cross: Tensor, one: Tensor, other: Tensor) -> float:
    """Centred kernel alignment of two linear kernels. cross: (D, E) X'Z of centred X, Z; one, other: X'X and Z'Z."""
    norms = float(one.norm()) * float(other.norm())
    return float(cross.square().sum()) / norms if norms else 0.0


def grams(sample: Sample, z: Tensor) -> tuple[Tensor, Tensor]:
    """X'Z (D, E) and Z'Z (E, E) of the centred features X and of Z (N, E), in float64."""
    centre, mean = z.double().mean(0), sample.moments.mean
    cross = torch.zeros(len(mean), z.shape[1], dtype=torch.float64, device=z.device)
    gram = torch.zeros(z.shape[1], z.shape[1], dtype=torch.float64, device=z.device)
    for rows, x in sample.blocks():
        centred = z[rows].double() - centre
        cross += (x - mean).T @ centred
        add_upper_gram(gram, centred)
    return cross, mirror_upper(gram)


def score(sample: Sample) -> Score:
    """CKA(K, Y) / CKA(K, R): K the linear kernel of the features, Y of the labels, R of the untrained network's.

    CKA(K, L) = <H K H, H L H> / (|H K H| |H L H|), H the centring matrix. Labels of classes are one-hot rows.
    Needs the features of the same network with random weights on the same images, `untrained`; `evaluation.rank`
    extracts them where this metric is asked for, with seed 0.
    Range: 0 and above, 0 if all features are equal. Higher is better. Cost: O(N D^2), and a second extraction.
    Source: Guo, KITE: A Kernel-based Improved Transferability Estimation Method, arXiv 2405.01603. The paper has no
    public code; the kernel is linear here, and the untrained network of the model's own architecture.
    Not for: networks that differ little from their random weights, whose denominator is near 1.
    """
    targets = torch.nn.functional.one_hot(sample.labels) if sample.y is not None else sample.targets
    features = sample.scatter.total
    to_labels, labels = grams(sample, targets)
    to_random, random = grams(sample, sample.untrained)
    aligned, random_alignment = cka(to_labels, features, labels), cka(to_random, features, random)
    if not random_alignment and features.any():
        raise UserError("untrained: its features are equal for all images, or have nothing in common with the model's")
    return Score(
        aligned / random_alignment if random_alignment else 0.0,
        {"label_alignment": aligned, "random_alignment": random_alignment},
    )
