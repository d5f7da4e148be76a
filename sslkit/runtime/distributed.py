"""Collectives with gradients; with one process each is the identity.

N ranks equal one because every rank has the same global loss, the backward of a collective is the true derivative
of the sum of the ranks' losses, and DDP's average divides by N again.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

_is_alone = False  # see `alone`


def world_size() -> int:
    """The number of processes of this run, 1 without torch.distributed."""
    return dist.get_world_size() if _is_joined() else 1


def rank() -> int:
    """The place of this process in the run, from 0."""
    return dist.get_rank() if _is_joined() else 0


def _is_joined() -> bool:
    return dist.is_available() and dist.is_initialized() and not _is_alone


@contextmanager
def alone() -> Iterator[None]:
    """Let the first process work by itself, as if it were the only one, while the others wait for it."""
    global _is_alone
    before, _is_alone = _is_alone, True
    try:
        yield
    finally:
        _is_alone = before


# Their names since PyTorch 2.14, and before.
_all_gather = getattr(dist, "all_gather_single", None) or getattr(dist, "all_gather_into_tensor", None)
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or getattr(dist, "reduce_scatter_tensor", None)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, dim: int) -> Tensor:
        ctx.dim, ctx.length = dim, x.shape[dim]
        x = x.contiguous()
        rows = x.new_empty(world_size() * len(x), *x.shape[1:])
        _all_gather(rows, x)
        return rows.unflatten(0, (world_size(), len(x))).movedim(0, dim).flatten(dim, dim + 1)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        # each rank gets the sum of its own part, not of all: half of what an all-reduce sends
        parts = grad.unflatten(ctx.dim, (world_size(), ctx.length)).movedim(ctx.dim, 0)
        share = grad.new_empty(parts.shape[1:])
        _reduce_scatter(share, parts.flatten(0, 1).contiguous())
        return share, None


def gather(x: Tensor, dim: int = 0) -> Tensor:
    """Concatenate x of every rank along dim, in rank order; each rank gets the gradient of its part.

    x has the same shape on all ranks. (n, ...) -> (world_size * n, ...) for dim 0.
    """
    return x if world_size() == 1 else _Gather.apply(x, dim)


def gather_objects(value: Any) -> list[Any]:
    """The value of each rank, of any type that can be pickled, in rank order. All ranks call this."""
    if world_size() == 1:
        return [value]
    values = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def union_over_ranks(items: Iterable[str]) -> list[str]:
    """The items of all ranks, each once, those of the first ranks first."""
    return list(dict.fromkeys(chain.from_iterable(gather_objects(list(items)))))


def in_batch_order(x: Tensor, dim: int = 0) -> Tensor:
    """Reorder gathered rows from rank order to the order of the batch that the ranks share.

    Rank r has the images r, r + world_size, ... of a batch, as split by the loader and the views.
    """
    return (
        x if world_size() == 1 else x.unflatten(dim, (world_size(), -1)).transpose(dim, dim + 1).flatten(dim, dim + 1)
    )


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        total = x.contiguous().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


def sum_over_ranks(x: Tensor) -> Tensor:
    """The sum of x over the ranks, with gradient."""
    return x if world_size() == 1 else _Sum.apply(x)


def local(x: Tensor) -> Tensor:
    """This process's share of a tensor that is in shares (`sslkit.runtime.sharded`), otherwise the tensor itself."""
    return x.to_local() if hasattr(x, "to_local") else x


def blocks_apart(module: nn.Module) -> list[nn.Module]:
    """The blocks of each ViT inside, student, teacher, predictor and decoder, that `fsdp` gathers one by one.

    The last two of each stay with the rest: the shares of regularisers are measured at their weights.
    """
    stacks = (getattr(child, "blocks", None) for child in module.modules())
    return [block for blocks in stacks if isinstance(blocks, (nn.Sequential, nn.ModuleList)) for block in blocks[:-2]]


class SyncBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm over the batch of all ranks, on any device (torch's own refuses the CPU)."""

    def _check_input_dim(self, x: Tensor) -> None:
        if x.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, got {x.dim()}")

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or world_size() == 1:
            return super().forward(x)
        dims = [0, *range(2, x.dim())]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        wide = x if x.dtype is torch.float64 else x.float()
        # the size of the maps may differ between ranks, as in a detector
        rows_here = wide.new_full((1,), wide.numel() / wide.shape[1])
        sums = sum_over_ranks(torch.cat([wide.sum(dims), rows_here]))
        count = sums[-1].detach()
        mean = sums[:-1] / count
        centred = wide - mean.view(shape)
        var = sum_over_ranks(centred.square().sum(dims)) / count
        self._update_running(mean.detach(), var.detach() * count / (count - 1).clamp(min=1))
        y = centred * torch.rsqrt(var + self.eps).view(shape)
        if self.affine:
            y = y * self.weight.view(shape) + self.bias.view(shape)
        return y.to(x.dtype)

    @torch.no_grad()
    def _update_running(self, mean: Tensor, var: Tensor) -> None:
        if not self.track_running_stats:
            return
        self.num_batches_tracked += 1
        rate = self.momentum if self.momentum is not None else 1 / self.num_batches_tracked.item()
        self.running_mean.lerp_(mean, rate)
        self.running_var.lerp_(var, rate)


def synchronize_batch_norm(module: nn.Module, device_type: str) -> nn.Module:
    """Make every batch norm inside use the batch of all ranks: torch's SyncBatchNorm on a GPU, ours elsewhere.

    Parameters, buffers and their names are kept. On the CPU timm's fused norm-and-activation layers stay local.
    """
    if device_type == "cuda":
        from timm.layers import convert_sync_batchnorm

        return convert_sync_batchnorm(module)
    for name, child in module.named_children():
        if type(child) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            sync = SyncBatchNorm(child.num_features, child.eps, child.momentum, child.affine, child.track_running_stats)
            sync.train(child.training)
            for key in ("weight", "bias"):
                setattr(sync, key, getattr(child, key))
            sync._buffers = child._buffers
            setattr(module, name, sync)
        else:
            synchronize_batch_norm(child, device_type)
    return module
