"""VISReg: a normal distribution by centre, scale and sliced Wasserstein distance (Wu et al. 2026, arXiv 2606.02572).

The equations are those of lightly's loss, which follows the paper's algorithm 1; the paper's text was not at hand.
"""

import torch
from torch import Tensor

EPS = 1e-4  # beside the standard deviation that the shape is divided by, as VICReg's


def centre(z: Tensor) -> Tensor:
    """Mean square of each dimension's mean (eq. 6): (..., N, D) -> scalar."""
    return z.mean(-2).square().mean()


def scale(z: Tensor) -> Tensor:
    """Mean square of 1 minus each dimension's standard deviation (eq. 1): (..., N, D) -> scalar."""
    return (1 - _std(z)).square().mean()


def shape(z: Tensor, slices: Tensor) -> Tensor:
    """Squared Wasserstein distance of z on each slice to the standard normal (eqs. 2 to 5), mean over slices. Scalar.

    z: (..., N, D), centred and divided by its standard deviation, through which no gradient flows.
    slices: (D, M) directions of length 1.
    """
    standard = (z - z.mean(-2, keepdim=True)) / (_std(z).detach().unsqueeze(-2) + EPS)
    ordered = (standard @ slices).sort(dim=-2, stable=True).values  # equal images: a GPU's order is the CPU's
    return (ordered - normal_quantiles(z.shape[-2], like=z)).square().mean()


def normal_quantiles(n: int, *, like: Tensor) -> Tensor:
    """(n, 1) quantiles of the standard normal at 1 / (n + 1), ..., n / (n + 1), as `like` in precision and device."""
    share = torch.arange(1, n + 1, dtype=torch.float64, device=like.device) / (n + 1)
    return torch.special.ndtri(share).to(like.dtype)[:, None]


def _std(z: Tensor) -> Tensor:
    """(..., N, D) -> (..., D). Without spread the gradient is 0, where that of torch.std is not a number."""
    return torch.linalg.vector_norm(z - z.mean(-2, keepdim=True), dim=-2) / z.shape[-2] ** 0.5
