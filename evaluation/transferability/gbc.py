"""GBC: overlap of the classes, each modelled as a Gaussian."""

from typing import Literal

import torch
from torch import Tensor

from evaluation.transferability._scatter import unit_of
from evaluation.transferability.base import BLOCK, Sample, Score
from sslkit.options.ranges import Natural, NotNegative

NOTHING = 1e-12  # overlaps too small to rank models by: a round number, far above the rounding of float64


def bhattacharyya_spherical(means: Tensor, variances: Tensor, times: int) -> Tensor:
    """Return distances (C, C) of Gaussians N(mu_c, s_c I), means (C, D), variances (C,):
    |mu_i - mu_j|^2 / (8 s) + times/2 (ln s - 1/2 ln s_i - 1/2 ln s_j), s = (s_i + s_j) / 2. times: D, or 1."""
    between = (variances[:, None] + variances) / 2
    logs = variances.log() / 2
    # Not from products of the means, whose rounding would separate equal constant classes.
    far = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist").square()
    return far / (8 * between) + times / 2 * (between.log() - logs[:, None] - logs)


def bhattacharyya_diagonal(means: Tensor, variances: Tensor) -> Tensor:
    """Return distances (C, C) of Gaussians with means (C, D) and variances (C, D) of each dimension:
    sum_d (mu_id - mu_jd)^2 / (8 s_d) + 1/2 sum_d (ln s_d - 1/2 ln s_id - 1/2 ln s_jd), s_d = (s_id + s_jd) / 2."""
    logs = variances.log().sum(1) / 2
    step = max(BLOCK // means.numel(), 1)
    distances = []
    for m, v, log in zip(means.split(step), variances.split(step), logs.split(step), strict=True):
        between = (v[:, None] + variances) / 2
        far = ((m[:, None] - means).square_() / between).sum(2) / 8
        distances.append(far + (between.log_().sum(2) - log[:, None] - logs) / 2)
    return torch.cat(distances)


def gbc(distances: Tensor) -> float:
    """Return - sum over ordered pairs i != j of exp(-BD_ij) (Pandy et al. 2022, eq. 4)."""
    overlaps = torch.exp(-distances)
    return -float(overlaps.sum() - overlaps.trace())


def project(sample: Sample, dims: int) -> tuple[Tensor, Tensor]:
    """Return class means and variances (C, k) along the k principal axes of largest variance, k = min(dims, N, D)."""
    small = sample.compact
    moments = small.moments
    if small.scatter.is_collapsed:  # on any axes they would have the rounding of their mean
        return torch.zeros(2, sample.n_classes, 1, dtype=torch.float64, device=sample.device).unbind()
    axes = small.scatter.eigenbasis.leading(min(dims, len(sample), len(moments.mean)))
    means = (moments.means - moments.mean) @ axes
    squares = torch.zeros_like(means)
    y = small.labels
    for rows, x in small.blocks():
        x -= moments.mean
        squares.index_add_(0, y[rows], (x @ axes - means[y[rows]]).square_())
    return means, squares / moments.counts[:, None]


def score(
    sample: Sample,
    *,
    covariance: Literal["spherical", "diagonal"] = "spherical",
    logdet: Literal["paper", "official"] = "paper",
    pca: Natural | None = 64,
    floor: NotNegative = 1e-4,
    floor_unit: Literal["absolute", "relative"] = "relative",
) -> Score:
    """- sum over ordered pairs of classes i != j of exp(-BD_ij), BD the Bhattacharyya distance of two Gaussians.

    covariance: of each class, "spherical" (the mean variance) or "diagonal". logdet: "paper", or "official", which
        counts the logarithm of a spherical variance once instead of D times. pca: the dimensions to keep, at most
        min(N, D); None for the original features. floor: minimum variance; floor_unit: "relative", times the power of
        100 next to the features' mean variance, so that features times 10 have the same score, as by its equation, and
        for a mean variance of 0.1 to 10 the published one; "absolute", as published, on features of any scale.
    Range: -C (C - 1) to 0. Higher is better. Cost: O(N D^2 + D^3), shared with others; O(N D + C^2 D) without pca.
    Source: Pandy et al., Transferability Estimation using Bhattacharyya Class Separability, CVPR 2022, eq. 3 and 4.
    Not for: pca=None at many dimensions, where all overlaps vanish and the score is 0 for every model.
    """
    y = sample.labels
    if pca is None:
        means, variances = sample.moments.means - sample.moments.mean, sample.moments.variances
    else:
        means, variances = project(sample, pca)
    shares = sample.moments.shares
    if floor_unit == "relative":
        floor *= unit_of(float((shares @ (variances + means.square())).mean()))
    floored = float((variances < floor).double().mean())
    variances = variances.clamp_min(max(floor, torch.finfo(torch.float64).tiny))
    if covariance == "diagonal":
        distances = bhattacharyya_diagonal(means, variances)
    else:
        distances = bhattacharyya_spherical(means, variances.mean(1), means.shape[1] if logdet == "paper" else 1)
    value = gbc(distances)
    return Score(value, {"dims": means.shape[1], "floored": floored}, _warnings(value, floored, len(y)))


def _warnings(value: float, floored: float, n: int) -> tuple[str, ...]:
    warnings = ()
    if floored > 0.5:
        warnings += (f"{floored:.0%} of the class variances are below the floor and were raised to it",)
    if value > -NOTHING:
        warnings += ("no two classes overlap: the score is 0 whatever the model; use pca=64 or fewer dimensions",)
    return warnings
