"""The pair kernel: the arranging MLP on every pair, without a buffer of pairs times hidden units.

W1 [z_i ; z_j] + b1 splits into u_i + v_j, so that the score of a pair is b + sum_h w_h relu(u_ih + v_jh).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sslkit.errors import UserError
from sslkit.members import nearest

KERNELS = ("auto", "blocked", "compiled")

# hidden x rows x columns of a tile: 1 MiB of floats stay in a core's second-level cache (measured best at
# 256 to 1024 pairs a side); a GPU wants few large launches instead.
_CPU_TILE = (16, 64, 256)
_GPU_TILE = (16, 1024, 4096)


def pair_scores(u: Tensor, v: Tensor, w: Tensor, b: Tensor, *, kernel: str = "auto") -> Tensor:
    """b + sum_h w_h relu(u_ih + v_jh), (r, n): row i is the anchor, column j the other sample.

    u: (r, H), v: (n, H), w: (H,), b: scalar; all of one floating dtype. r < n when each rank has its own rows.
    kernel: "blocked" walks tiles and recomputes them in the backward; "compiled" lets inductor fuse the
    elementwise form, for some 15 s of compiling; "auto" is compiled on a GPU and blocked elsewhere.
    Both keep only u, v and w for the backward.
    """
    if kernel not in KERNELS:
        raise UserError(f"there is no pair kernel {kernel!r}: {nearest(kernel, KERNELS)}")
    if kernel == "compiled" or (kernel == "auto" and u.is_cuda):
        return b + _run_compiled(u, v, w)
    return b + _Blocked.apply(u, v, w)


class _Blocked(torch.autograd.Function):
    """relu(u + v) = max(u, -v) + v, so the forward is one maximum and one product with w for each tile.

    Backward, with P_ijh = g_ij [u_ih + v_jh > 0]: du_ih = w_h sum_j P_ijh, dv_jh = w_h sum_i P_ijh, and since
    relu(s) = s [s > 0], dw_h = sum_i u_ih (sum_j P_ijh) + sum_j v_jh (sum_i P_ijh) needs no pass of its own.
    """

    @staticmethod
    def forward(ctx, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(u, v, w)
        out = u.new_empty(len(u), len(v))
        u, minus_v, base = u.T.contiguous(), -v.T.contiguous(), v @ w
        with _one_thread(u):
            tile = _Tile(u, minus_v)
            for rows, columns in tile.blocks():
                total = base[columns].repeat(_length(rows))
                for hidden in tile.hidden():
                    s = tile.buffer(hidden, rows, columns)
                    torch.maximum(u[hidden, rows, None], minus_v[hidden, None, columns], out=s)
                    total.addmv_(s.flatten(1).T, w[hidden])
                out[rows, columns] = total.view(_length(rows), -1)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u, v, w = ctx.saved_tensors
        u, v = u.T.contiguous(), v.T.contiguous()
        over_others, over_anchors = torch.zeros_like(u), torch.zeros_like(v)  # sum_j P, sum_i P: (H, r), (H, n)
        with _one_thread(u):
            tile = _Tile(u, v)
            for rows, columns in tile.blocks():
                g = grad[rows, columns]
                for hidden in tile.hidden():
                    s = tile.buffer(hidden, rows, columns)
                    torch.add(u[hidden, rows, None], v[hidden, None, columns], out=s)
                    torch.ops.aten.threshold_backward.grad_input(g.expand_as(s), s, 0, grad_input=s)
                    over_others[hidden, rows] += s.sum(2)
                    over_anchors[hidden, columns] += s.sum(1)
        grad_w = (u * over_others).sum(1) + (v * over_anchors).sum(1)
        return (over_others.T * w), (over_anchors.T * w), grad_w


class _Tile:
    """One reused buffer and the walk over (rows, columns) and hidden units, for u (H, r) and v (H, n)."""

    def __init__(self, u: Tensor, v: Tensor) -> None:
        self.sizes = (len(u), u.shape[1], v.shape[1])
        limits = _GPU_TILE if u.is_cuda else _CPU_TILE
        self.steps = tuple(min(size, limit) for size, limit in zip(self.sizes, limits, strict=True))
        self.memory = u.new_empty(self.steps[0] * self.steps[1] * self.steps[2])

    def hidden(self) -> Iterator[slice]:
        return _slices(self.sizes[0], self.steps[0])

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        for rows in _slices(self.sizes[1], self.steps[1]):
            for columns in _slices(self.sizes[2], self.steps[2]):
                yield rows, columns

    def buffer(self, *block: slice) -> Tensor:
        shape = [_length(part) for part in block]
        return self.memory[: shape[0] * shape[1] * shape[2]].view(shape)


def _slices(size: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


def _length(part: slice) -> int:
    return part.stop - part.start


@contextmanager
def _one_thread(x: Tensor) -> Iterator[None]:
    """A tile takes about 20 us, less than waking a second thread costs: on 2 cores, one is twice as fast."""
    threads = torch.get_num_threads()
    if x.is_cuda or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _elementwise(u: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return (torch.relu(u[:, None] + v[None]) * w).sum(-1)


@cache
def _compiled() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return torch.compile(_elementwise, fullgraph=True)


def _run_compiled(u: Tensor, v: Tensor, w: Tensor) -> Tensor:
    try:
        return _compiled()(u, v, w)
    except torch._dynamo.exc.BackendCompilerFailed as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"the compiled pair kernel cannot be built here, use kernel=blocked: {reason}") from error
