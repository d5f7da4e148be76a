"""Measures of a set of features: crowding, effective rank, spectrum, uniformity. Tensors in, floats out."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.errors import UserError

CENTROIDS = ("mean", "unit")  # of a class in `crowding`

BLOCK = 4096  # rows held in float64 at once
EPS = 2.0**-52  # float64: the error of a sum of n terms is at most n * EPS times the largest partial sum


@dataclass(frozen=True)
class Crowding:
    """inter: mean distance between class centroids. intra: mean over classes of the mean squared distance to it.

    centroid: the rule of the centroids. left_out: classes of one image, which have no variance.
    """

    inter: float
    intra: float
    centroid: str = CENTROIDS[0]
    left_out: int = 0


@dataclass(frozen=True)
class ClassGeometry:
    """The classes of l2-normalised features, float64.

    labels: (K,) the classes with two images or more, in order. distance: (K, K) between their centroids.
    variance: (K,) mean squared distance of a class's images to its centroid, 0 where it is below rounding error.
    left_out: classes of one image.
    """

    labels: Tensor
    distance: Tensor
    variance: Tensor
    left_out: int

    def inter(self) -> float:
        """Mean distance between two centroids (Song et al. 2024, section IV-A)."""
        return _pairs(self.distance).mean().item()

    def intra(self) -> float:
        """Mean variance of a class, each class weighted equally (Song et al. 2024, section IV-A)."""
        return self.variance.mean().item()

    def fisher_ratio(self) -> float:
        """Scatter between classes over scatter within: tr S_B / tr S_W (Fukunaga 1990, chapter 10), classes weighted
        equally. inf where no class varies.

        tr S_B is the variance of the centroids, K - 1 in its denominator: half their mean squared distance.
        """
        return (_pairs(self.distance).square().mean() / 2 / self.variance.mean()).item()


def class_geometry(features: Any, labels: Any, centroid: str) -> ClassGeometry:
    """Centroid distances and class variances of l2-normalised features, in one pass over blocks of rows.

    features: (N, D) tensor or array, also memory-mapped. labels: (N,) integers, at least two classes with two images.
    centroid: "mean" or "unit", see `crowding`.
    Raises UserError for another centroid, and for fewer than two such classes.
    """
    if centroid not in CENTROIDS:
        raise UserError(f"centroid is {centroid!r}; known: mean, unit")
    names, y, counts = torch.as_tensor(labels).unique(return_inverse=True, return_counts=True)
    large = counts >= 2
    if large.sum() < 2:
        raise UserError("crowding needs at least two classes with two images each")
    mean, power = _class_moments(features, y, counts)
    mean, power = mean[large], power[large]
    centre = F.normalize(mean, dim=1) if centroid == "unit" else mean
    variance = power - 2 * (mean * centre).sum(1) + centre.square().sum(1)
    # Means of n rows and sums of D products, each at most 1.
    rounding = (counts[large] + features.shape[1] + 8) * EPS
    variance = variance.where(variance > rounding, 0.0)
    distances = torch.cdist(centre, centre, compute_mode="donot_use_mm_for_euclid_dist")  # matmul loses half the digits
    return ClassGeometry(names[large], distances, variance, int((~large).sum()))


def _class_moments(features: Any, y: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """(K, D) mean and (K,) mean squared length (1, except for zero rows) of each class's normalised rows."""
    mean = torch.zeros(len(counts), features.shape[1], dtype=torch.float64, device=y.device)
    power = torch.zeros(len(counts), dtype=torch.float64, device=y.device)
    for start, block in blocks(features):
        z, rows = unit_rows(block), y[start : start + len(block)]
        mean.index_add_(0, rows, z)
        power.index_add_(0, rows, z.square().sum(1))
    return mean / counts[:, None], power / counts


def blocks(features: Any) -> Iterator[tuple[int, Tensor]]:
    """(first row, (n, D) float64) for one block after another. features: (N, D) tensor or array."""
    for start in range(0, len(features), BLOCK):
        block = features[start : start + BLOCK]
        yield start, block.double() if isinstance(block, Tensor) else torch.from_numpy(block.astype("float64"))


def unit_rows(x: Tensor) -> Tensor:
    """Rows (..., D) scaled to length 1, at any float64 scale; zero rows stay zero."""
    return F.normalize(x.double(), dim=-1, eps=1e-300)


def crowding(features: Tensor, labels: Tensor, centroid: str = CENTROIDS[0]) -> Crowding:
    """Inter-class distance and intra-class variance of l2-normalised features (Song et al. 2024, section IV-A).

    features: (N, D). labels: (N,) integers, at least two classes with two images each.
    centroid: "mean" as printed in the paper; "unit" puts the class means back on the sphere, which the paper's
    tables require (with "mean" the variance is at most 1).
    """
    geometry = class_geometry(features, labels, centroid)
    return Crowding(geometry.inter(), geometry.intra(), centroid, geometry.left_out)


def effective_rank(s: Tensor, eps: float = 1e-7) -> float:
    """exp of the entropy of a spectrum scaled to sum 1, eps added to each part (Garrido et al. 2023, eq. 1).

    s: (D,) non-negative.
    """
    p = s / s.sum().clamp_min(1e-300) + eps
    return torch.exp(-(p * p.log()).sum()).item()


def rankme(z: Tensor, eps: float = 1e-7) -> float:
    """exp of the entropy of the singular values: the effective rank, 1 to D (Garrido et al. 2023, arXiv 2210.02885).

    z: (N, D), not centred. It grows with N: compare at one N. eps: added to each share of the singular values.
    """
    return effective_rank(torch.linalg.svdvals(_finite(z)), eps)


def directions(eigenvalues: Tensor) -> int:
    """Number of positive eigenvalues. eigenvalues: (D,) falling.

    Positive: above the rounding error of zeros, D * 2^-52 of the largest, and at least 1e-12 of the largest."""
    return int((eigenvalues > eigenvalues[0] * max(1e-12, len(eigenvalues) * EPS)).sum())


def decay(eigenvalues: Tensor, first: int = 1, last: int | None = None) -> float:
    """Minus the slope of log eigenvalue over log rank, by least squares; the spectrum part of `alpha_req`.

    eigenvalues: (D,) of the covariance, falling. Those not counted by `directions` are taken as zero.
    first, last: the ranks that are fitted, from 1, both included; None: the last eigenvalue above zero.
    Raises UserError if fewer than two eigenvalues are above zero there.
    """
    above = directions(eigenvalues)
    stop = min(last or above, above)
    if stop - first < 1:
        raise UserError(
            f"alpha_req needs at least two eigenvalues above zero between ranks {first} and {last or above}"
        )
    rank = torch.arange(first, stop + 1, dtype=eigenvalues.dtype, device=eigenvalues.device).log()
    level = eigenvalues[first - 1 : stop].log()
    rank = rank - rank.mean()
    return -((rank * (level - level.mean())).sum() / rank.square().sum()).item()


def alpha_req(z: Tensor, first: int = 1, last: int | None = None) -> float:
    """Decay of the covariance spectrum: minus the slope of log eigenvalue over log rank (Agrawal et al. 2022).

    z: (N, D). first, last: range of ranks of the fit, counted from 1; None: up to the last positive eigenvalue.
    """
    z = _finite(z)
    eigenvalues = torch.linalg.svdvals(_without_rounding(z - z.mean(0), z)).square() / max(len(z) - 1, 1)
    return decay(eigenvalues, first, last)


@dataclass(frozen=True)
class Moments:
    """Sums over rows, float64, from which the spectra are computed; two sets of rows add and subtract.

    n: rows. total: (D,) sum of z. products: (D, D) sum of z z^T. z: the rows minus `around`, (D,).
    The covariance has full precision where `around` is near the mean of the rows.
    """

    n: int
    total: Tensor
    products: Tensor
    around: Tensor

    @classmethod
    def from_rows(cls, features: Any, around: Tensor | None = None) -> "Moments":
        """features: (N, D) tensor or array, read in blocks. around: (D,), equal for all sums to be added; None: 0."""
        like, width = {"dtype": torch.float64, "device": getattr(features, "device", None)}, features.shape[1]
        n, total, products = 0, torch.zeros(width, **like), torch.zeros(width, width, **like)
        around = torch.zeros(width, **like) if around is None else around.to(**like)
        for _, block in blocks(features):
            block = block - around
            n, total = n + len(block), total + block.sum(0)
            products.addmm_(block.T, block)
        return cls(n, total, products, around)

    def __sub__(self, other: "Moments") -> "Moments":
        return Moments(self.n - other.n, self.total - other.total, self.products - other.products, self.around)

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(self.n + other.n, self.total + other.total, self.products + other.products, self.around)

    def singular_values(self) -> Tensor:
        """(D,) falling, of the uncentred rows. Values under 3e-8 of the largest are rounding: where most directions are
        empty, `rankme` on them differs from that of the SVD by a relative 1e-3 at most."""
        cross = torch.outer(self.total, self.around)
        products = self.products + cross + cross.T + self.n * torch.outer(self.around, self.around)
        return torch.linalg.eigvalsh(products).clamp_min(0).sqrt().flip(0)

    def eigenvalues(self) -> Tensor:
        """(D,) falling, of the covariance."""
        covariance = (self.products - torch.outer(self.total, self.total) / self.n) / max(self.n - 1, 1)
        return torch.linalg.eigvalsh(covariance).clamp_min(0).flip(0)


def lidar(z: Tensor, groups: Tensor, delta: float = 1e-4, eps: float = 1e-7) -> float:
    """Effective rank of the LDA matrix of views against images (Thilak et al. 2023, arXiv 2312.04000).

    z: (N, D) embeddings of several views of each image. groups: (N,) the image of each row.
    delta: added to the within-group covariance's diagonal. eps: added to each share of the eigenvalues.
    Raises UserError for fewer than two groups, and for a group of one view.
    """
    z = _finite(z)
    _, g, counts = torch.as_tensor(groups).unique(return_inverse=True, return_counts=True)
    if len(counts) < 2 or int(counts.min()) < 2:
        raise UserError("lidar needs at least two groups, each of two or more views")
    mu = torch.zeros(len(counts), z.shape[1], dtype=z.dtype, device=z.device).index_add_(0, g, z) / counts[:, None]
    within, between = _without_rounding(z - mu[g], z), _without_rounding(mu - mu.mean(0), z)
    s_within = within.T @ within / (len(z) - len(counts)) + delta * torch.eye(
        z.shape[1], dtype=z.dtype, device=z.device
    )
    s_between = between.T @ between / (len(counts) - 1)
    values, vectors = torch.linalg.eigh(s_within)
    # No eigenvalue is below delta, but with large features delta may be lost in the rounding of the largest one.
    values = values.clamp_min(max(delta, len(values) * EPS * values[-1].item()))
    root = vectors * values.rsqrt() @ vectors.T
    spectrum = torch.linalg.eigvalsh(root @ s_between @ root).clamp_min(0)
    return effective_rank(spectrum, eps)


def uniformity(z: Tensor, t: float = 2.0) -> float:
    """log of the mean of exp(-t d^2) over pairs of l2-normalised rows, lower is more uniform (Wang & Isola 2020).

    z: (N, D). Raises UserError for fewer than two rows.
    """
    if len(z) < 2:
        raise UserError(f"uniformity needs at least two rows, got {len(z)}")
    z = unit_rows(_finite(z))
    return uniformity_of(log_potentials(z.split(BLOCK), t), len(z))


def uniformity_of(potentials: Tensor, n: int) -> float:
    """`uniformity` of n rows from the `log_potentials` of their parts."""
    return torch.logsumexp(potentials.flatten(), 0).item() - math.log(n * (n - 1) / 2)


def log_potentials(parts: Sequence[Tensor], t: float = 2.0) -> Tensor:
    """(G, G): log of the sum of exp(-t d^2) over the pairs between parts g and h; -inf below the diagonal.

    parts: G tensors (n, D), not normalised here. At most one pair of parts is held at once.
    """
    logs = torch.full((len(parts), len(parts)), -math.inf, dtype=parts[0].dtype, device=parts[0].device)
    for g, a in enumerate(parts):
        for h, b in enumerate(parts[g:], g):
            squared = a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T
            pairs = _pairs(squared) if g == h else squared.flatten()
            logs[g, h] = torch.logsumexp(-t * pairs, 0)
    return logs


def alignment(z1: Tensor, z2: Tensor, power: float = 2.0) -> float:
    """Mean of d^power between the l2-normalised rows of two views of the same images (Wang & Isola 2020).

    z1, z2: (N, D), row i of both is the same image.
    """
    z1, z2 = (unit_rows(_finite(z)) for z in (z1, z2))
    return (z1 - z2).norm(dim=1).pow(power).mean().item()


def _pairs(square: Tensor) -> Tensor:
    """The entries above the diagonal of (K, K)."""
    return square[tuple(torch.triu_indices(*square.shape, 1))]


def _without_rounding(centred: Tensor, z: Tensor) -> Tensor:
    """(n, D) rows minus means of z (N, D); 0 in columns within rounding error, N * 2^-52 of the largest."""
    return centred.where(centred.abs().amax(0) > len(z) * EPS * z.abs().amax(0), 0.0)


def _finite(z: Tensor) -> Tensor:
    z = torch.as_tensor(z).double()
    if z.dim() != 2 or not z.isfinite().all():
        raise UserError(f"features must be a finite (N, D) matrix, got shape {tuple(z.shape)}")
    return z
