"""How well patches tell the parts of images apart, without labels: the dense structure estimator (arXiv 2510.17299).

Dai et al. 2025 found that it falls with the accuracy of segmentation while training goes on. Two public forms disagree.
This is the authors' measure (`compute_DSE` of EldercatSAM/SSL-Degradation): the effective dimension is that of one
patch of each image, averaged over the patches. Their regulariser, and lightly's port of it, take all patches of all
images in one matrix. As in the regulariser, patches belong to the nearest of the final centres, of which the first are
drawn by squared distances (k-means++); the measure's own code draws them by distances.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.errors import UserError

LOCAL, GLOBAL, TOGETHER = 3, 24, 8  # clusters of an image, and of so many images: the paper's
SEED = 0  # of first centres and of the patches that are drawn: one number of one network
ROUNDS, MOVED = 20, 1e-4  # of k-means at most, and the shift of the centres that ends it: as in the authors' code


@dataclass(frozen=True)
class DenseStructure:
    """inter: mean distance of a patch to the next cluster's centre. dimension: effective, as a share of the largest.

    intra_image, intra_group: spread inside the clusters of an image, and of a group of images. Distances and spreads
    are in units of the mean distance of a patch to the mean of all.
    """

    inter: float
    dimension: float
    intra_image: float
    intra_group: float

    @property
    def value(self) -> float:
        """The estimator; higher is better, of one network over time: pure noise has a high one, too."""
        return self.inter + self.dimension - (self.intra_image + self.intra_group) / 2


def dense_structure(patches: Tensor) -> DenseStructure:
    """Measure patches (N, P, D) of N images.

    They are scaled to length 1 in float64. Raises UserError for fewer than two images or four patches, and for patches
    that are all alike or not finite.
    """
    if patches.dim() != 3 or len(patches) < 2 or patches.shape[1] <= LOCAL:
        raise UserError(f"patches are (N, P, D), of two images and {LOCAL + 1} patches or more: {tuple(patches.shape)}")
    if not patches.isfinite().all():
        raise UserError("patches must be finite")
    z, generator = F.normalize(patches.detach().double(), dim=-1), torch.Generator().manual_seed(SEED)
    unit = (z - z.mean((0, 1))).norm(dim=-1).mean().item()
    if unit < 1e-9:  # rounding of float32
        raise UserError("all patches are alike: the network has collapsed")
    images = [Clusters.of(image, LOCAL, generator) for image in z]
    groups = [Clusters.of(group.flatten(0, 1), GLOBAL, generator) for group in z.split(TOGETHER)]
    return DenseStructure(
        _mean([group.to_next() for group in groups]) / unit,
        effective_dimension(z, generator),
        _mean([_mean(image.spreads()) for image in images if image.spreads()]) / unit,
        _mean([spread for group in groups for spread in group.spreads()]) / unit,
    )


@dataclass(frozen=True)
class Clusters:
    """x: (n, D) float64. centres: (K, D). labels: (n,) the nearest centre of each row."""

    x: Tensor
    centres: Tensor
    labels: Tensor

    @classmethod
    def of(cls, x: Tensor, k: int, generator: torch.Generator) -> "Clusters":
        """k-means, from centres drawn by squared distance (Arthur & Vassilvitskii 2007). An empty cluster stays."""
        centres = x[torch.randint(len(x), (1,), generator=generator)]
        while len(centres) < min(k, len(x)):
            squared = torch.cdist(x, centres).amin(1).square().cpu()
            if squared.sum() == 0:  # fewer unlike rows than clusters
                break
            centres = torch.cat([centres, x[torch.multinomial(squared, 1, generator=generator)]])
        for _ in range(ROUNDS):
            labels = torch.cdist(x, centres).argmin(1)
            before, sizes = centres, torch.bincount(labels, minlength=len(centres))[:, None]
            means = torch.zeros_like(centres).index_add_(0, labels, x) / sizes.clamp(min=1)
            centres = means.where(sizes > 0, before)
            if (centres - before).norm() < MOVED:
                break
        return cls(x, centres, torch.cdist(x, centres).argmin(1))

    def to_next(self) -> float:
        """Mean distance to the nearest centre of another cluster; 0 with a single one."""
        if len(self.centres) < 2:
            return 0.0
        distances = torch.cdist(self.x, self.centres)
        return distances.scatter(1, self.labels[:, None], math.inf).amin(1).mean().item()

    def spreads(self) -> list[float]:
        """The sum of the singular values of each cluster around its mean, over the root of max(n - 1, D)."""
        members = (self.x[self.labels == k] for k in range(len(self.centres)))
        return [
            (torch.linalg.svdvals(some - some.mean(0)).sum() / math.sqrt(max(len(some) - 1, some.shape[1]))).item()
            for some in members
            if len(some) > 1
        ]


def effective_dimension(z: Tensor, generator: torch.Generator) -> float:
    """Mean over the P patches of `z` (N, P, D) of exp(entropy of the singular values) / min(N, D).

    Of each image the patches are in a random order, so that a matrix (N, D) has unlike places of all images.
    """
    order = torch.rand(z.shape[:2], generator=generator).argsort(1).to(z.device)
    singular = torch.linalg.svdvals(z.gather(1, order[..., None].expand_as(z)).transpose(0, 1))
    share = singular / singular.sum(1, keepdim=True)
    return (torch.special.entr(share).sum(1).exp().mean() / min(len(z), z.shape[2])).item()


def _mean(values: list[float]) -> float:
    """The mean; 1 of none, as in the authors' code."""
    return sum(values) / len(values) if values else 1.0
