"""The pairs of a rank, and the arranging MLP on every one of them, without a buffer of pairs times hidden units.

W1 [z_i ; z_j] + b1 splits into u_i + v_j, so the score of a pair is b + sum_h w_h relu(u_ih + v_jh).
"""

import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sslkit.errors import UserError, first_line, nearest
from sslkit.runtime import distributed
from sslkit.terminal import say

KERNELS = ("auto", "blocked", "compiled")

# hidden x rows x columns of a tile: 1 MiB of floats fits in a core's second-level cache (measured best at
# 256 to 1024 pairs a side); on a GPU few large launches are faster.
_CPU_TILE = (16, 64, 256)
_GPU_TILE = (16, 1024, 4096)  # 256 MiB of floats, a launch each
SMALL = 2**20  # pairs of rows of z; measured: 2 threads break even between 1,000 and 2,000 rows
_failed: list[str] = []  # reason why compiling failed in this process, which is not tried again


@dataclass
class RankRows:
    """The pairs of this rank: the rows of z that are its anchors (None is all), and the map from images to rows."""

    anchors: Tensor | None
    images: slice  # images of the anchors among those of the step
    views: int


def of_rank(z: Tensor, index: Tensor, *, as_code: bool) -> tuple[Tensor, Tensor, RankRows]:
    """z (V, N, D) as (V N, D) rows, view by view, their images' index, and the pairs of this rank.

    z, index: of all ranks, rank by rank. The rows are in the order of the batch, in which the first of equally near
    neighbours counts: the same on any number of ranks.
    as_code: only this rank's images, as in the official code.
    """
    views, count, _ = z.shape
    world, rank = distributed.world_size(), distributed.rank()
    rows = slice(rank * count // world, (rank + 1) * count // world)
    if world == 1:
        return z.flatten(0, 1), index, RankRows(None, rows, views)
    if as_code:
        return z[:, rows].flatten(0, 1), index[rows], RankRows(None, slice(0, count // world), views)
    anchors = torch.arange(views * count, device=z.device).view(views, count)[:, rows].flatten()
    z, index = distributed.in_batch_order(z, 1), distributed.in_batch_order(index)
    return z.flatten(0, 1), index, RankRows(anchors, rows, views)


@contextmanager
def one_thread(x: torch.Tensor, pairs: int = 0) -> Iterator[None]:
    """Run CPU operations of this Python thread on one core inside the context, if `pairs` is at most SMALL.

    Waking the other threads takes longer than an operation on some 100,000 pairs.
    """
    threads = torch.get_num_threads()
    if x.device.type != "cpu" or threads == 1 or pairs > SMALL:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def compiling_pays(pairs_a_side: int, steps: int) -> bool:
    """Return True if inductor's 15 s pay off on CPU: after some 10,000 steps of 256 rows (1.6 ms), never above 512."""
    return steps >= 10_000 and pairs_a_side <= 512 and shutil.which("g++") is not None


def pair_scores(u: Tensor, v: Tensor, w: Tensor, b: Tensor, *, kernel: str = "auto", steps: int = 0) -> Tensor:
    """b + sum_h w_h relu(u_ih + v_jh), (r, n): row i is the anchor, column j the other sample.

    u: (r, H), v: (n, H), w: (H,), b: scalar; all of one floating dtype. r < n if each rank has its own rows.
    kernel: "blocked" computes tiles and recomputes them in the backward pass; "compiled" fuses the elementwise form
    with inductor, after some 15 s of compiling; "auto" is compiled on a GPU and if `compiling_pays`, and falls back to
    blocked, with a warning, without a compiler.
    steps: calls of the whole run, 0 if unknown.
    Both save only u, v and w for the backward pass.
    """
    if kernel not in KERNELS:
        raise UserError(f"there is no pair kernel {kernel!r}: {nearest(kernel, KERNELS)}")
    pays = u.is_cuda or compiling_pays(len(v), steps)
    if kernel == "compiled":
        return b + _run_compiled(u, v, w)
    if kernel == "auto" and pays and not _failed:
        try:
            return b + _run_compiled(u, v, w)
        except UserError as error:
            _failed.append(str(error))
            say.warn(f"{error}; using kernel='blocked' instead", stacklevel=2)
    return b + _Blocked.apply(u, v, w)


class _Blocked(torch.autograd.Function):
    """relu(u + v) = max(u, -v) + v, so the forward pass is one maximum and one product with w per tile.

    Backward, with P_ijh = g_ij [u_ih + v_jh > 0]: du_ih = w_h sum_j P_ijh, dv_jh = w_h sum_i P_ijh, and since
    relu(s) = s [s > 0], dw_h = sum_i u_ih (sum_j P_ijh) + sum_j v_jh (sum_i P_ijh) needs no extra pass.
    """

    @staticmethod
    def forward(ctx, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(u, v, w)
        tile = _Tile(u, v)
        us, vs, ws = tile.of_u(u.T.contiguous()), tile.of_v(-v.T.contiguous()), w.split(tile.hidden)
        out = (v @ w).repeat(len(u), 1)
        with one_thread(u):  # an operation on a tile takes 20 us
            for u_parts, strip in zip(us, out.split(tile.rows), strict=True):
                for v_parts, block in zip(vs, strip.split(tile.columns, 1), strict=True):
                    total = block.clone(memory_format=torch.contiguous_format).view(-1)
                    for u_h, v_h, w_h in zip(u_parts, v_parts, ws, strict=True):
                        s = torch.maximum(u_h, v_h, out=tile.buffer(u_h, v_h))
                        total.addmv_(s.flatten(1).T, w_h)
                    block.copy_(total.view_as(block))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u, v, w = ctx.saved_tensors
        tile, u, v = _Tile(u, v), u.T.contiguous(), v.T.contiguous()
        over_others, over_anchors = torch.zeros_like(u), torch.zeros_like(v)  # sum_j P, sum_i P: (H, r), (H, n)
        columns = list(zip(tile.of_v(v), tile.of_v(over_anchors), strict=True))
        with one_thread(u):
            for u_parts, u_sums, strip in zip(tile.of_u(u), tile.of_u(over_others), grad.split(tile.rows), strict=True):
                for (v_parts, v_sums), g in zip(columns, strip.split(tile.columns, 1), strict=True):
                    for u_h, v_h, u_sum, v_sum in zip(u_parts, v_parts, u_sums, v_sums, strict=True):
                        s = torch.add(u_h, v_h, out=tile.buffer(u_h, v_h))
                        torch.ops.aten.threshold_backward.grad_input(g.expand_as(s), s, 0, grad_input=s)
                        u_sum += s.sum(2, keepdim=True)
                        v_sum += s.sum(1, keepdim=True)
        grad_w = (u * over_others).sum(1) + (v * over_anchors).sum(1)
        return over_others.T * w, over_anchors.T * w, grad_w


class _Tile:
    """Splits of u (r, H) and v (n, H) into tiles, and the buffer that all tiles share. All parts are views."""

    def __init__(self, u: Tensor, v: Tensor) -> None:
        sizes = (u.shape[1], len(u), len(v))
        limits = _GPU_TILE if u.is_cuda else _CPU_TILE
        self.hidden, self.rows, self.columns = (max(1, min(pair)) for pair in zip(sizes, limits, strict=True))
        self.memory = u.new_empty(self.hidden * self.rows * self.columns)
        self.views: dict[tuple[int, ...], Tensor] = {}

    def of_u(self, x: Tensor) -> list[tuple[Tensor, ...]]:
        """x: (H, r) -> per block of rows its blocks of hidden units, (h, rows, 1)."""
        return list(zip(*(block.split(self.rows, 1) for block in x[:, :, None].split(self.hidden)), strict=True))

    def of_v(self, x: Tensor) -> list[tuple[Tensor, ...]]:
        """x: (H, n) -> per block of columns its blocks of hidden units, (h, 1, columns)."""
        return list(zip(*(block.split(self.columns, 2) for block in x[:, None].split(self.hidden)), strict=True))

    def buffer(self, u: Tensor, v: Tensor) -> Tensor:
        """(h, rows, columns) uninitialised, for one part of u and one of v."""
        shape = (*u.shape[:2], v.shape[2])
        if shape not in self.views:
            self.views[shape] = self.memory[: math.prod(shape)].view(shape)
        return self.views[shape]


@cache
def _compile() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def elementwise(u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return (torch.relu(u[:, None] + v[None]) * w).sum(-1)

    return torch.compile(elementwise, fullgraph=True)


def _run_compiled(u: Tensor, v: Tensor, w: Tensor) -> Tensor:
    try:
        return _compile()(u, v, w)
    except torch._dynamo.exc.TorchDynamoException as error:  # of the compiler, without triton, or of an older GPU
        raise UserError(f"the compiled pair kernel cannot be built here: {first_line(error)}") from error
