"""The computations of the authors' public code that differ from the paper: ZeenSong/DSA at commit 8a1ffcc.

Line numbers refer to its methods/dsa.py and, with a C, to its methods/contrastive.py, its only path that runs.
All pairs are those of one process, as in the code.
"""

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.regularizers.dsa import arranging, scoring


def arrange_views(arrange: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """M, (V N, V N), of unnormalised z (V, N, D) (lines 109 to 117).

    arrange: an `ArrangingMLP` of inputs="diff". The rows of each block of two views sum to 1, and the block of the
    views a and b equals that of a and a: the code pairs the first view with itself there.
    """
    views, count, _ = z.shape
    blocks = torch.stack([arrange(view) for view in _scale(z)])  # (V, N, N)
    return blocks[:, :, None].expand(-1, -1, views, -1).reshape(views * count, views * count)


def _scale(z: Tensor) -> Tensor:
    """z (V, N, D), each dimension of a view divided by the sum of |z_i - z_j| over all pairs (line 111)."""
    count = z.shape[1]
    z = z - z[:, :1]  # makes a constant dimension exactly 0
    places = torch.arange(1 - count, count, 2, device=z.device, dtype=z.dtype)
    total = 2 * (z.sort(dim=1, stable=True).values * places[:, None]).sum(1, keepdim=True)
    return z / total.clamp_min(1e-12)


def arrange_term(z: Tensor, m: Tensor, score: Tensor | None, *, alpha: float, gamma: float) -> Tensor:
    """log(1 + mean of exp(sc_i (2 M_ij - alpha) d_ij / gamma) over all n^2 pairs, 0 for i = j) (lines 17 to 21).

    z: (n, D). m: (n, n). score: (n,), None for 1.
    """
    pairs = arranging.arrange_log_sum(z, m, score, alpha=alpha, gamma=gamma, score_mode="inside")
    return F.softplus(pairs - 2 * math.log(len(z)))


def prior_matrix(features: Tensor, *, tau: float | str, neighbours: int) -> Tensor:
    """exp(-||a_i - a_j|| / tau), (n, n), without the square and the row sums of eqs. 11 and 12 (lines 92 to 95)."""
    return scoring.prior_matrix(features, tau=tau, squared=False, normalise="none", neighbours=neighbours)


def consistency_term(m: Tensor, prior: Tensor, views: int) -> Tensor:
    """Sum over the blocks of two views of ||M - Mpre||_F, not squared (line C101)."""
    blocks = zip(_blocks(m, views), _blocks(prior, views), strict=True)
    return torch.stack([scoring.consistency_loss(a, b, frobenius="norm") for a, b in blocks]).sum()


def _blocks(m: Tensor, views: int) -> Iterator[Tensor]:
    return (block for rows in m.chunk(views) for block in rows.chunk(views, dim=1))
