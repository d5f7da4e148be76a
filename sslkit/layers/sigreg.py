"""SIGReg: embeddings whose projections on random directions are standard normal (Balestriero & LeCun 2025, 2511.08544).

The distance of one projection is the statistic of Epps and Pulley (1983): N times the integral of the squared
difference of the empirical characteristic function and exp(-t^2 / 2), weighted by exp(-t^2 / 2).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.errors import UserError
from sslkit.runtime import distributed, draws


def draw_slices(dim: int, count: int, step: int, *, like: Tensor) -> Tensor:
    """(dim, count) random directions of length 1, which depend only on the step: the same on all ranks and devices.

    In the precision of `like`, and drawn on its device: a copy from the CPU would be waited for.
    """
    return F.normalize(draws.normal((dim, count), step, like.device), dim=0).to(like.dtype)


def sigreg(z: Tensor, slices: Tensor, *, knots: int = 9, t_max: float = 5.0) -> Tensor:
    """The statistic of Epps and Pulley of z on each slice, the mean over views and slices. Scalar.

    z: (..., N, D) this rank's images; N is summed over ranks. slices: (D, M) of length 1.
    knots, t_max: points of the trapezoidal rule on [0, t_max]; the integrand is even, so twice that half is the whole.
        The paper's algorithm 1 has 17 points on [-5, 5], which is 9 and 5.0; the authors' later code has 17 and 3.0.
    """
    if knots < 2:
        raise UserError(f"sigreg: knots must be at least 2, the ends of the integral, got {knots}")
    t = torch.linspace(0, t_max, knots, device=z.device, dtype=z.dtype)
    normal = torch.exp(-t.square() / 2)
    angle = (z @ slices)[..., None] * t  # (..., N, M, T)
    sums = torch.stack([angle.cos().sum(-3), angle.sin().sum(-3)])
    n = z.shape[-2] * distributed.world_size()
    real, imaginary = distributed.sum_over_ranks(sums) / n
    error = ((real - normal).square() + imaginary.square()) * normal
    return 2 * n * torch.trapezoid(error, t, dim=-1).mean()
