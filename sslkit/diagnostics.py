"""What a cloud of features looks like: crowding, effective rank, spectrum, uniformity. Tensors in, floats out."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.errors import UserError


@dataclass(frozen=True)
class Crowding:
    """inter: mean distance between class centroids. intra: mean over classes of the mean squared distance to it.

    centroid: the rule of the centroids. left_out: classes of one image, which have no variance.
    """

    inter: float
    intra: float
    centroid: str = "mean"
    left_out: int = 0


def crowding(features: Tensor, labels: Tensor, centroid: str = "mean") -> Crowding:
    """Inter-class distance and intra-class variance of l2-normalised features (Song et al. 2024, section IV-A).

    features: (N, D). labels: (N,) integers, at least two classes with two images each.
    centroid: "mean" as printed in the paper; "unit" puts the class means back on the sphere, which the paper's
    tables require (with "mean" the variance is at most 1).
    """
    if centroid not in ("mean", "unit"):
        raise UserError(f"centroid is {centroid!r}; known: mean, unit")
    z = F.normalize(torch.as_tensor(features).double(), dim=1)
    _, y, counts = torch.as_tensor(labels).unique(return_inverse=True, return_counts=True)
    kept = counts >= 2
    if kept.sum() < 2:
        raise UserError("crowding needs at least two classes with two images each")
    mu = torch.zeros(len(counts), z.shape[1], dtype=z.dtype, device=z.device).index_add_(0, y, z)
    mu = mu / counts[:, None]
    if centroid == "unit":
        mu = F.normalize(mu, dim=1)
    squared = (z - mu[y]).square().sum(1)
    variance = torch.zeros_like(counts, dtype=z.dtype).index_add_(0, y, squared) / counts
    return Crowding(
        inter=torch.pdist(mu[kept]).mean().item(),
        intra=variance[kept].mean().item(),
        centroid=centroid,
        left_out=int((~kept).sum()),
    )


def rankme(z: Tensor, eps: float = 1e-7) -> float:
    """exp of the entropy of the singular values: the effective rank, 1 to D (Garrido et al. 2023, arXiv 2210.02885).

    z: (N, D), not centred. It grows with N: compare at one N.
    """
    s = torch.linalg.svdvals(_finite(z))
    p = s / s.sum().clamp_min(1e-300) + eps
    return torch.exp(-(p * p.log()).sum()).item()


def alpha_req(z: Tensor, first: int = 1, last: int | None = None) -> float:
    """Decay of the covariance spectrum: minus the slope of log eigenvalue over log rank (Agrawal et al. 2022).

    z: (N, D). first, last: the range of ranks, counted from 1, that the line is fitted to; None: all above zero.
    """
    z = _finite(z)
    eigenvalues = torch.linalg.svdvals(z - z.mean(0)).square() / max(len(z) - 1, 1)
    above = int((eigenvalues > eigenvalues[0] * 1e-12).sum())
    stop = min(last or above, above)
    if stop - first < 1:
        raise UserError(
            f"alpha_req needs at least two eigenvalues above zero between ranks {first} and {last or above}"
        )
    rank = torch.arange(first, stop + 1, dtype=z.dtype, device=z.device).log()
    level = eigenvalues[first - 1 : stop].log()
    rank = rank - rank.mean()
    return -((rank * (level - level.mean())).sum() / rank.square().sum()).item()


def lidar(z: Tensor, groups: Tensor, delta: float = 1e-4, eps: float = 1e-7) -> float:
    """Effective rank of the LDA matrix of views against images (Thilak et al. 2023, arXiv 2312.04000).

    z: (N, D) embeddings of several views of each image. groups: (N,) which image a row shows.
    delta: added to the within-group covariance's diagonal.
    """
    z = _finite(z)
    _, g, counts = torch.as_tensor(groups).unique(return_inverse=True, return_counts=True)
    if len(counts) < 2 or int(counts.min()) < 2:
        raise UserError("lidar needs at least two groups, each of two or more views")
    mu = torch.zeros(len(counts), z.shape[1], dtype=z.dtype, device=z.device).index_add_(0, g, z) / counts[:, None]
    within = z - mu[g]
    between = mu - mu.mean(0)
    s_within = within.T @ within / (len(z) - len(counts)) + delta * torch.eye(
        z.shape[1], dtype=z.dtype, device=z.device
    )
    s_between = between.T @ between / (len(counts) - 1)
    values, vectors = torch.linalg.eigh(s_within)
    root = vectors * values.rsqrt() @ vectors.T
    spectrum = torch.linalg.eigvalsh(root @ s_between @ root).clamp_min(0)
    p = spectrum / spectrum.sum().clamp_min(1e-300) + eps
    return torch.exp(-(p * p.log()).sum()).item()


def uniformity(z: Tensor, t: float = 2.0) -> float:
    """log of the mean of exp(-t d^2) over pairs of l2-normalised rows, lower is more uniform (Wang & Isola 2020)."""
    squared = torch.pdist(F.normalize(_finite(z), dim=1)).square()
    return torch.logsumexp(-t * squared, 0).item() - math.log(len(squared))


def alignment(z1: Tensor, z2: Tensor, power: float = 2.0) -> float:
    """Mean of d^power between the l2-normalised rows of two views of the same images (Wang & Isola 2020)."""
    z1, z2 = (F.normalize(_finite(z), dim=1) for z in (z1, z2))
    return (z1 - z2).norm(dim=1).pow(power).mean().item()


def _finite(z: Tensor) -> Tensor:
    z = torch.as_tensor(z).double()
    if z.dim() != 2 or not z.isfinite().all():
        raise UserError(f"features must be a finite (N, D) matrix, got shape {tuple(z.shape)}")
    return z
