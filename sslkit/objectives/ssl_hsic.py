"""SSL-HSIC: views depend on their image's identity by kernels (Li et al. 2021, arXiv 2106.08320)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import BYOL
from sslkit.embeddings import Predicted, along
from sslkit.layers.heads import mlp
from sslkit.objectives.base import WithTeacher
from sslkit.options.ranges import Share, Weight, Width
from sslkit.runtime import distributed
from sslkit.runtime.device import to_device_of

SAMPLE = 256  # images whose distances fit the kernel's width: a round number, 32,640 pairs
RATE, DECAYS = 3e-4, (0.9, 0.999)  # of Adam for the kernel's width, as in the authors' code


@dataclass
class Drawn(Predicted):
    """frequencies: (2, K, D), phases: (2, K, 1) of two sets of K random Fourier features; equal on all ranks."""

    frequencies: Tensor | None = along(None, default=None)
    phases: Tensor | None = along(None, default=None)


def fourier_features(x: Tensor, frequencies: Tensor, phases: Tensor, scale: Tensor) -> Tensor:
    """Features whose inner products estimate the kernel scale / sqrt(|x - x'|^2 + scale^2).

    (..., D), (K, D), (K, 1) -> (..., K).
    """
    return (2 / len(frequencies)) ** 0.5 * torch.cos(x @ (frequencies / scale).T + phases[:, 0])


def draw_frequencies(features: int, dim: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Two sets of frequencies (2, K, D) and phases (2, K, 1) for the kernel 1 / sqrt(1 + |x|^2), on the CPU.

    The kernel is the mean of exp(-a^2 |x|^2 / 2) over a standard normal a, so a frequency is a times a standard normal
    vector. The authors' code draws the same distribution from a table of Bessel functions.
    """
    amplitude = torch.randn(2, features, 1, generator=generator)
    phases = 2 * torch.pi * torch.rand(2, features, 1, generator=generator)
    return amplitude * torch.randn(2, features, dim, generator=generator), phases


class SSLHSIC(WithTeacher):
    """align + constrain is -HSIC(Z, Y) + gamma sqrt(HSIC(Z, Z)), Y the identity of the image (section 3 of the paper).

    Each of the N images of all ranks has M = 4 embeddings for two views: predictions and the teacher's projections, all
    of length 1. With their kernel k, HSIC(Z, Y) is the mean of k over two embeddings of one image, p != l, minus its
    mean over all embeddings, up to a constant factor, as in the authors' code. align is minus the first mean, constrain
    the second plus gamma sqrt(HSIC(Z, Z)); HSIC(Z, Z) = tr(K H K H) / (N M)^2, K the kernel's matrix, H centring.

    k(x, x') = c / sqrt(|x - x'|^2 + c^2), estimated by random Fourier features drawn anew in each step: one set of them
    for HSIC(Z, Y), its product with another for HSIC(Z, Z). p = l is left out as in the paper, where it is a constant;
    in the authors' code it is in and only adds the noise of the draw. c is learned as in the code, by the entropy of k:
    Adam raises the mean of log |dk / d|x - x'|^2| over pairs; here over all pairs of up to 256 images, there over 2^20
    drawn pairs. c, which has no gradient in the loss, is a buffer.

    z: the student's projections; target: the teacher's.

    gamma: weight of the root of HSIC(Z, Z).
    features: number K of Fourier features.
    momentum: of the teacher at the start; it rises to 1 as a cosine.
    hidden: width of projector and predictor; None takes twice the backbone's (4096 for a ResNet-50, as published).
    dim: width of z.
    view_by_view: one pass for each view, whose batch norms see it alone, as in the authors' code; False: one for all.
    """

    views = BYOL

    def __init__(
        self,
        backbone: nn.Module,
        *,
        gamma: Weight = 3.0,
        features: Width = 512,
        momentum: Share = 0.99,
        hidden: Width | None = None,
        dim: Width = 256,
        view_by_view: bool = True,
    ) -> None:
        super().__init__(backbone)
        self.view_by_view = view_by_view
        self.gamma, self.features = gamma, features
        self.dim = dim
        hidden = hidden or 2 * backbone.width
        self.projector = mlp(backbone.width, hidden, dim)
        self.predictor = mlp(dim, hidden, dim)
        self.copy_teacher(momentum)
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("moments", torch.zeros(2))  # Adam's
        self.register_buffer("updates", torch.zeros(()))
        self.register_buffer("decays", torch.tensor(DECAYS), persistent=False)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Drawn:
        """Embed as with any teacher, and draw the features of this step."""
        e = super().embed(views, index)
        drawn = draw_frequencies(self.features, self.dim, generator)
        frequencies, phases = (to_device_of(x.to(e.z.dtype), e.z) for x in drawn)
        return Drawn(**vars(e), frequencies=frequencies, phases=phases)

    def align(self, e: Drawn) -> Tensor:
        """Minus the mean kernel of two embeddings of one image."""
        x = fourier_features(embeddings(e), e.frequencies[0], e.phases[0], self.scale)
        m, n, _ = x.shape
        return -(x.sum(0).square().sum() - x.square().sum()) / (n * m * (m - 1))

    def constrain(self, e: Drawn) -> Tensor:
        """The mean kernel of all embeddings plus gamma times the root of HSIC(Z, Z)."""
        x = embeddings(e).flatten(0, 1)
        first, two = (fourier_features(x, *drawn, self.scale) for drawn in zip(e.frequencies, e.phases, strict=True))
        mean = first.mean(0)
        covariance = (first - mean).T @ (two - two.mean(0)) / len(x)
        # a norm, whose gradient at 0 is 0, and not a root of a sum of squares
        variance = self.gamma * torch.linalg.vector_norm(covariance)
        self.watched |= {"variance": variance.detach(), "kernel_scale": self.scale}
        return mean.square().sum() + variance

    def observe(self, e: Drawn) -> None:
        """One step of Adam for the kernel's width c: the derivative of log c - 3/2 log(|x - x'|^2 + c^2)."""
        x = distributed.in_batch_order(embeddings(e), 1)[:, :SAMPLE].flatten(0, 1)
        pairs = torch.ones(len(x), len(x), dtype=torch.bool, device=x.device).triu(1)
        distance = (2 - 2 * x @ x.T).clamp_min(0)
        terms = 3 * self.scale / (distance + self.scale**2)
        slope = 1 / self.scale - terms.where(pairs, 0).sum() / pairs.sum()
        decays = self.decays.to(slope)
        self.updates = self.updates + 1
        self.moments = torch.stack([slope, slope**2]).lerp(self.moments, decays)
        first, second = self.moments / (1 - decays**self.updates)
        self.scale = self.scale + RATE * first / (second.sqrt() + 1e-8)


def embeddings(e: Predicted) -> Tensor:
    """(2 V, N, D): the predictions and the targets of all views, of length 1."""
    return F.normalize(torch.cat([e.prediction, e.target]), dim=-1)
