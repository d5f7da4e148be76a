"""TransRate: coding rate of the features of all images less that of the classes."""

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from evaluation.transferability._scatter import EPS
from evaluation.transferability.base import BLOCK, Sample, Score
from sslkit.errors import UserError
from sslkit.options.ranges import Positive

FAINT = 1e-6  # rounding error of a determinant per direction, relative to 1


def coding_rate(gram: Tensor, n: float, eps: float) -> float:
    """Return 1/2 ln det(I + Z'Z / (n eps)) of n rows (Huang et al. 2022, eq. 3). gram: Z'Z or ZZ'.

    If the rounding of the Gram matters relative to I, eigenvalues within it are set to 0.
    """
    scaled = gram / (n * eps)
    noise = max(n, len(gram)) * EPS * float(scaled.diagonal().max())
    if not math.isfinite(noise):
        raise UserError(f"transrate: eps={eps:g} is too small for these features")
    if noise > FAINT:
        values = torch.linalg.eigvalsh(scaled)
        return float(values[values > noise].log1p().sum()) / 2
    scaled.diagonal().add_(1)
    return float(torch.linalg.cholesky(scaled).diagonal().log().sum())


def class_grams(sample: Sample) -> Iterator[Tensor]:
    """Yield Z_c'Z_c or Z_cZ_c', whichever is smaller, of each class; rows about the mean of all images."""
    mean, d = sample.moments.mean, sample.x.shape[1]
    order = sample.labels.argsort(stable=True)
    for rows in order.split(sample.moments.counts.long().tolist()):
        if len(rows) <= d:
            z = sample.take(rows).features.sub_(mean)
            yield z @ z.T
            continue
        gram = torch.zeros(d, d, dtype=torch.float64, device=sample.device)
        for chunk in rows.split(max(BLOCK // d, 1)):
            z = sample.take(chunk).features.sub_(mean)
            gram.addmm_(z.T, z)
        yield gram


def score(
    sample: Sample, *, eps: Positive = 1e-4, weights: Literal["shares", "equal"] = "shares", normalize: bool = False
) -> Score:
    """R(Z) - sum_c w_c R(Z_c), R(Z) = 1/2 ln det(I + Z'Z / (n eps)): the gain in coding rate from the classes.

    Z: the features less their mean; Z_c: its rows of class c (not centred again), n_c of them.
    eps: the distortion, 1e-4 as in the paper's listing and all ports of it. weights: "shares", w_c = n_c / N, as the
        paper's text defines R(Z | Y); "equal", w_c = 1 / C, as its listing computes it (the same for balanced classes).
    normalize: scale Z to tr(Z'Z) = 1 first, so that the score does not depend on the scale of the features.
    Range: with "shares" at least 0, ln det being concave. Higher is better.
    Cost: O(N D^2 + D^3 / 3), shared with other metrics, and O(sum_c n_c D min(n_c, D)). D > N: N in place of D.
    Source: Huang et al., Frustratingly Easy Transferability Estimation, ICML 2022, section 3 and its listing.
    Not for: comparing models of different feature scale or dimension without `normalize`: as eps is absolute, the
    score grows with both. D >> n_c: R(Z_c) is limited by n_c rather than by how compact the class is.
    """
    n, c = len(sample.labels), sample.n_classes
    sample = sample.compact
    if normalize and not sample.scatter.is_collapsed:
        eps *= float(sample.scatter.total.trace())
    counts = sample.moments.counts.tolist()
    rates = [coding_rate(gram, n_c, eps) for gram, n_c in zip(class_grams(sample), counts, strict=True)]
    shares = [n_c / n if weights == "shares" else 1 / c for n_c in counts]
    whole = coding_rate(sample.scatter.total, n, eps)
    within = sum(share * rate for share, rate in zip(shares, rates, strict=True))
    return Score(whole - within, {"rate": whole, "rate_within": within})
