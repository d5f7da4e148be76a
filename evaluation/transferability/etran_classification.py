"""ETran's classification part: mean confidence of a discriminant in the images' own classes."""

from typing import Literal

import torch
from torch import Tensor

from evaluation.transferability.base import Sample, Score
from evaluation.transferability.sfda import Discriminant, first_stage, saturation

Variant = Literal["paper", "official"]


def nearest_mean(means: Tensor, shares: Tensor) -> Discriminant:
    """The discriminant of A = I: softmax_c( x.mu_c - |mu_c|^2 / 2 + ln pi_c ). means: (C, D), shares: (C,)."""
    return Discriminant(means.T, shares.log() - means.square().sum(1) / 2)


def nearest_mean_posterior(sample: Sample) -> Tensor:
    """Return its probability (N,) of each image's own class, with the mean subtracted, which does not change it."""
    y, moments = sample.labels, sample.moments
    rule = nearest_mean(moments.means - moments.mean, moments.shares)
    return torch.cat([rule.own_posterior(x - moments.mean, y[rows]) for rows, x in sample.blocks()])


def score(sample: Sample, *, variant: Variant = "paper") -> Score:
    """mean_i p(y_i | x_i) of a discriminant fitted on the same images.

    variant: "paper", the regularised discriminant of SFDA's first stage; or "official", as in the authors' code: its
        eigenvectors are orthonormal, so that A is the identity and the nearest mean decides.
    Range: 0 to 1. Higher is better. Cost: "paper" O(N D^2 + D^3), shared with other metrics; "official" O(N D C).
    Source: Gholami et al., ETran, ICCV 2023, section 3.2, and its code.
    Not for: models whose features differ in scale: "official" has no unit for distances, and "paper" shrinks by
    exp(-5 lambda), see `sfda`; "paper", D >= N, where it is 1 for every model.
    """
    sample.labels  # noqa: B018  (raises if the labels are not classes)
    diagnostics = {}
    if variant == "paper":
        stage = first_stage(sample)
        terms = stage.own_posterior()
        diagnostics = {"shrinkage": stage.g, "lambda": stage.lam, "jitter": stage.discriminant.jitter}
    else:
        terms = nearest_mean_posterior(sample)
    value = float(terms.mean())
    return Score(value, diagnostics, saturation(value), terms)
