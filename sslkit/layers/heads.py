"""Projectors and predictors: small MLPs on top of the backbone."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.errors import UserError


def mlp(
    width: int,
    hidden: int,
    dim: int,
    *,
    layers: int = 2,
    norm: bool = True,
    last_norm: bool = False,
    activation: Callable[[], nn.Module] | None = None,
) -> nn.Sequential:
    """Linear - batch norm - ReLU blocks, then one Linear: (B, width) -> (B, dim).

    layers: number of Linear layers. norm: False leaves the batch norms of the blocks out.
    last_norm: batch norm without scale and shift after the last Linear. activation: in place of ReLU.
    hidden: width of the layers between. Only a Linear without a following batch norm has a bias.
    Raises UserError for hidden or dim below 1.
    """
    if hidden < 1 or dim < 1:
        raise UserError(f"hidden and dim of a head must be at least 1, got hidden={hidden}, dim={dim}")
    modules: list[nn.Module] = []
    for _ in range(layers - 1):
        modules += [nn.Linear(width, hidden, bias=not norm), *([nn.BatchNorm1d(hidden)] if norm else [])]
        modules.append(activation() if activation else nn.ReLU(inplace=True))
        width = hidden
    modules.append(nn.Linear(width, dim, bias=not last_norm))
    if last_norm:
        modules.append(nn.BatchNorm1d(dim, affine=False))
    return nn.Sequential(*modules)


class UnitLength(nn.Module):
    """Rows (N, D) divided by their length."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)
