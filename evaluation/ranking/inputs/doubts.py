"""doubts: what is degenerate in the features of a `Sample`: constant columns, rows and columns that repeat."""

import torch
from torch import Tensor

from evaluation.transferability.base import BLOCK, Sample

FEW = 16  # rows, or columns, that are checked first for repetitions: nearly all sound features differ within them
STEPS = 4  # in units of eps: columns whose values differ by no more are constant up to the rounding of a few operations


def doubts(sample: Sample) -> tuple[str, ...]:
    """Return warnings about degenerate features, valid for every metric; empty for sound features."""
    return sample.once("doubts", lambda: _doubts(sample.x))


def _doubts(x: Tensor) -> tuple[str, ...]:
    n, d = x.shape
    constant = constant_columns(x)
    if constant == d:
        return (f"all {n} rows of features are equal: the score is meaningless",)
    lines = (f"{constant} of {d} columns of features are constant",) if 2 * constant > d else ()
    rows = distinct_rows(x)
    if 2 * rows <= n:
        lines += (f"only {rows} of {n} rows of features differ: the model maps the other images to equal features",)
    varied = (~_constant(_evenly_spaced(x, 0), x.dtype)).nonzero()[:, 0]
    columns = distinct_rows(x.T, varied)
    if len(varied) > 1 and 2 * columns <= len(varied):
        lines += (f"only {columns} of {len(varied)} columns of features differ: the others repeat them",)
    return lines


def constant_columns(x: Tensor) -> int:
    """Count the columns of (N, D) that are constant up to rounding; a lower bound if half of them or fewer."""
    seemingly = _constant(_evenly_spaced(x, 0), x.dtype)
    if 2 * int(seemingly.sum()) <= x.shape[1]:
        return 0
    low, high = x[0].clone(), x[0].clone()
    for block in x.split(max(BLOCK // x.shape[1], 1)):
        low, high = torch.minimum(low, block.amin(0)), torch.maximum(high, block.amax(0))
    return int(_constant(torch.stack([low, high]), x.dtype).sum())


def distinct_rows(x: Tensor, rows: Tensor | None = None) -> int:
    """Count the distinct rows of (N, D); a lower bound if more than half of them are distinct.

    rows: (n,) the rows to count; None for all.
    """
    few = _evenly_spaced(x, 1) if rows is None else _evenly_spaced(x, 1)[rows]
    distinct = len(torch.unique(fingerprints(few)))
    if 2 * distinct > len(few):
        return distinct
    return len(torch.unique(row_marks(x if rows is None else x[rows])))


def row_marks(x: Tensor) -> Tensor:
    """Return the fingerprints (N,) of rows (N, D), without a float64 copy of all of them."""
    return torch.cat([fingerprints(block) for block in x.split(max(BLOCK // x.shape[1], 1))])


def fingerprints(x: Tensor) -> Tensor:
    """Return hashes (N,) int64 of rows (N, D), equal for equal rows on every processor: integer sums are exact."""
    bits = (x.double() + 0.0).contiguous().view(torch.int64)  # + 0.0: no -0.0
    bits = bits ^ (bits >> 32)  # float32 values have zeros in the lower half
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(2**62, (x.shape[1],), generator=generator).mul_(2).add_(1).to(x.device)
    return (bits * factors).sum(1)


def _constant(rows: Tensor, kind: torch.dtype) -> Tensor:
    """Return (D,) bool: the columns whose values lie within a few eps of their type, `kind`."""
    low, high = rows.double().aminmax(dim=0)
    return high - low <= STEPS * torch.finfo(kind).eps * torch.maximum(low.abs(), high.abs())


def _evenly_spaced(x: Tensor, dim: int) -> Tensor:
    """Return FEW rows (dim=0) or columns (dim=1), evenly spaced."""
    size = x.shape[dim]
    places = torch.linspace(0, size - 1, min(size, FEW), dtype=torch.float64).round().long().to(x.device)
    return x[places] if dim == 0 else x[:, places]
