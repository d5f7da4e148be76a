"""TMI: entropy of the features within a class."""

import math

import torch
from torch import Tensor

from evaluation.transferability.base import BLOCK, Sample, Score, TooFewImages
from sslkit.options.ranges import Natural, Positive


def kth_distances(x: Tensor, k: int) -> Tensor:
    """(n,) the distance of each row (n, D) to its k-th nearest other row in the maximum norm, k < n."""
    step = max(BLOCK // len(x), 1)
    return torch.cat([torch.cdist(rows, x, p=torch.inf).kthvalue(k + 1).values for rows in x.split(step)])


def entropy(distances: Tensor, k: int, dim: int) -> float:
    """Kozachenko-Leonenko estimate of the differential entropy, in nats, of n rows of `dim` numbers.

    psi(n) - psi(k) + dim times the mean of ln(2 r). distances: (n,) r, of each row to its k-th neighbour.
    """
    psi_n, psi_k = torch.special.digamma(torch.tensor([len(distances), k], dtype=torch.float64)).tolist()
    return psi_n - psi_k + dim * float((2 * distances).log().mean())


def score(sample: Sample, *, k: Natural = 3, floor: Positive = 1.0) -> Score:
    """Mean over classes of pi_c H(Z | y = c), the share of a class times the entropy of its features.

    k: the neighbour whose distance is taken. floor: smallest distance, in units of the features. Classes of 2 to k
        images are left out and a class of one image counts as 0, as in the authors' code; the paper's H(Z | Y) is the
        same sum without the division by the number of classes.
    Range: unbounded; wide classes score higher. Higher is better. Cost: O(D sum n_c^2).
    Source: Xu & Kang, Fast and Accurate Transferability Measurement by Evaluating Intra-class Feature Variance,
    ICCV 2023; k and floor of the authors' code.
    Not for: models of different width or scale of features, which move the entropy more than what was learned; features
    so small that the floor decides (`floored`).
    """
    x, y, counts = sample.features, sample.labels, sample.moments.counts
    classes = [c for c, n in enumerate(counts.tolist()) if n > k]
    if not classes:
        raise TooFewImages(f"tmi: no class has more than {k} images: take more of them, or tmi(k=1)")
    distances = [kth_distances(x[y == c], k) for c in classes]
    entropies = [entropy(distance.clamp_min(floor), k, x.shape[1]) for distance in distances]
    single = int((counts == 1).sum())
    shares = sample.moments.shares[classes].tolist()
    value = math.fsum(p * h for p, h in zip(shares, entropies, strict=True)) / (len(classes) + single)
    floored = float((torch.cat(distances) < floor).double().mean())
    warnings = ()
    if floored > 0.5:
        warnings = (f"{floored:.0%} of the distances are below floor={floor:g} and were raised to it",)
    return Score(value, {"left_out": len(counts) - len(classes) - single, "floored": floored}, warnings)
