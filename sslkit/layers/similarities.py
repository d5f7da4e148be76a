"""Losses of the products of many rows with many keys, in blocks of rows: their matrix is never held whole.

A block is computed again in the backward pass, so that memory grows with the rows and with the keys, not with their
product. A matrix of one block is computed at once, and kept for the backward pass.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from sslkit.embeddings import wide

PAIRS = 2**24  # of a block of rows: 64 MiB in fp32


def blocks(rows: int, keys: int) -> list[slice]:
    """Slices of the rows, each of at most PAIRS products with the keys, or of one row."""
    step = max(1, PAIRS // max(1, keys))
    return [slice(start, start + step) for start in range(0, rows, step)]


def log_sum_exp(
    rows: Tensor, keys: Tensor, *, temperature: float = 1.0, without: Tensor | None = None, tf32: bool = False
) -> Tensor:
    """Log of the sum over the keys of exp(row . key / temperature): (..., R, D), (..., K, D) -> (..., R).

    The keys are (K, D), the same for all rows, or have the leading dimensions of the rows.
    without: (R,) of each row a key that is left out of its sum. tf32: see `product`.
    """
    with torch.autocast(rows.device.type, enabled=False):
        rows, keys, tf32 = wide(rows), wide(keys), _on_tensor_cores(rows, tf32)
        if not tf32 and math.prod(rows.shape[:-1]) * keys.shape[-2] <= PAIRS:
            return torch.logsumexp(_logits(rows, keys, temperature, without), dim=-1)
        if keys.dim() > 2:
            how = {"temperature": temperature, "without": without, "tf32": tf32}
            return torch.stack([log_sum_exp(*pair, **how) for pair in zip(rows, keys, strict=True)])
        total = _CrossEntropy.apply(rows.reshape(-1, rows.shape[-1]), keys, None, temperature, without, tf32)
        return total.view(rows.shape[:-1])


def cross_entropy(rows: Tensor, keys: Tensor, codes: Tensor, *, tf32: bool = False) -> Tensor:
    """Cross-entropy of the codes with the softmax of the products: (R, D), (K, D), (R, K) -> (R,).

    codes: each row sums to 1; without gradient. tf32: see `product`.
    """
    with torch.autocast(rows.device.type, enabled=False):
        rows, keys, tf32 = wide(rows), wide(keys), _on_tensor_cores(rows, tf32)
        if not tf32 and len(rows) * len(keys) <= PAIRS:
            return F.cross_entropy(rows @ keys.T, codes, reduction="none")
        return _CrossEntropy.apply(rows, keys, codes, 1.0, None, tf32)


@torch.no_grad()
def product(rows: Tensor, keys: Tensor, *, tf32: bool = False) -> Tensor:
    """(..., D), (K, D) -> (..., K), without gradient.

    tf32: multiply fp32 tensors of a GPU on its tensor cores: operands have 10 bits
        after the binary point, sums are fp32. Operands are rounded to nearest before: the hardware may cut them off,
        which makes all products smaller: 128 rows near 65536 prototypes had a loss of 3.17 with an error of 2e-3 cut
        off, of 4e-6 rounded, and of 1e-4 with operands in bf16.
    """
    tf32 = _on_tensor_cores(rows, tf32)
    with tensor_cores(tf32), torch.autocast(rows.device.type, enabled=False):
        return round_to_tf32(rows) @ round_to_tf32(keys).T if tf32 else rows @ keys.T


@torch.no_grad()
def most_similar(rows: Tensor, keys: Tensor, *, without: Tensor | None = None) -> Tensor:
    """The number of the key with the largest product for each row, the first of equal ones: (R, D), (K, D) -> (R,).

    without: as in `log_sum_exp`.
    """
    with torch.autocast(rows.device.type, enabled=False):  # half precision would choose among near ones
        parts = blocks(len(rows), len(keys)) or [slice(0)]
        each = [_logits(rows[block], keys, 1.0, _part(without, block)).argmax(-1) for block in parts]
    return torch.cat(each) if len(each) > 1 else each[0]


def square_distances(a: Tensor, b: Tensor) -> Tensor:
    """||a_i - b_j||^2 of rows of length 1, or 0 as of what has no features: (r, D), (n, D) -> (r, n)."""
    square = (a @ b.T).mul_(-2).add_(2)
    return square.sub_(_is_zero(a)[:, None]).sub_(_is_zero(b)).clamp_(min=0)


def total_of_blocks(function: Callable[..., Tensor], keys: int, *rows: Tensor) -> Tensor:
    """Sum of function(*block of the rows) over blocks of rows, each computed again in the backward pass.

    keys: number of products that the function makes with a row. rows: tensors (R, ...).
    """
    parts = blocks(len(rows[0]), keys)
    if len(parts) <= 1:
        return function(*rows)
    # nothing here is random: its state would be fetched from the GPU for each block
    again = {"use_reentrant": False, "preserve_rng_state": False, "determinism_check": "none"}
    return torch.stack([checkpoint(function, *(x[block] for x in rows), **again) for block in parts]).sum(0)


def round_to_tf32(x: Tensor) -> Tensor:
    """fp32 numbers rounded to the nearest that TF32 has, 10 bits after the binary point instead of 23 (Dekker 1971)."""
    large = x * (2**13 + 1)
    return large - (large - x)


@contextmanager
def tensor_cores(allowed: bool) -> Iterator[None]:
    """Let a GPU multiply fp32 matrices in TF32 inside the context, if allowed; afterwards the setting is as before."""
    if not allowed or torch.backends.cuda.matmul.fp32_precision == "tf32":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _is_zero(x: Tensor) -> Tensor:
    """(r, D) -> (r,): 1 for a row of zeros, else 0."""
    return (x.detach() == 0).all(1).to(x)


def _on_tensor_cores(x: Tensor, asked: bool) -> bool:
    return asked and x.is_cuda and x.dtype is not torch.float64


def _part(without: Tensor | None, block: slice) -> Tensor | None:
    return None if without is None else without[block]


def _logits(rows: Tensor, keys: Tensor, temperature: float, without: Tensor | None) -> Tensor:
    logits = rows @ keys.mT
    if temperature != 1:
        logits.div_(temperature)
    if without is not None:
        logits.scatter_(-1, without[:, None].expand(*logits.shape[:-1], 1), float("-inf"))
    return logits


class _CrossEntropy(torch.autograd.Function):
    """`log_sum_exp` of (R, D) and (K, D), or `cross_entropy` if there are codes; keeps rows, keys and codes."""

    @staticmethod
    def forward(
        ctx, rows: Tensor, keys: Tensor, codes: Tensor | None, temperature: float, without: Tensor | None, tf32: bool
    ) -> Tensor:
        if tf32:
            rows, keys = round_to_tf32(rows), round_to_tf32(keys)
        ctx.save_for_backward(rows, keys, codes, without)
        ctx.temperature, ctx.tf32 = temperature, tf32
        loss = rows.new_empty(len(rows))
        with tensor_cores(tf32):
            for block in blocks(len(rows), len(keys)):
                logits = _logits(rows[block], keys, temperature, _part(without, block))
                shares = logits.log_softmax(-1)
                if codes is not None:
                    torch.neg(shares.mul_(codes[block]).sum(-1), out=loss[block])
                else:  # log_softmax is the logits minus their log-sum-exp, in one pass: so differ their largest, too
                    torch.sub(logits.amax(-1), shares.amax(-1), out=loss[block])
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, keys, codes, without = ctx.saved_tensors
        of_rows, of_keys = ctx.needs_input_grad[:2]
        grad = (grad / ctx.temperature)[:, None]
        weighted = round_to_tf32(rows * grad) if ctx.tf32 else rows * grad
        grad_rows = torch.empty_like(rows) if of_rows else None
        grad_keys = torch.zeros_like(keys) if of_keys else None
        with torch.autocast(rows.device.type, enabled=False), tensor_cores(ctx.tf32):
            for block in blocks(len(rows), len(keys)):
                share = _logits(rows[block], keys, ctx.temperature, _part(without, block)).softmax(-1)
                if codes is not None:
                    share -= codes[block]
                if of_rows:
                    torch.mm(share, keys, out=grad_rows[block])
                if of_keys:
                    grad_keys.addmm_(share.T, weighted[block])
        return grad_rows.mul_(grad) if of_rows else None, grad_keys, None, None, None, None
