"""Rows in the coordinates of their principal axes, from the scatter shared by a sample's metrics."""

import torch
from torch import Tensor

from evaluation.transferability._scatter import Scatter
from evaluation.transferability.base import Sample


def rank(scatter: Scatter) -> int:
    """Return the rank of the centred rows: the number of eigenvalues above rounding."""
    return int(scatter.varies.sum())


def principal_coordinates(sample: Sample, dims: int) -> Tensor:
    """Return the centred rows (N, dims) float64 on the `dims` axes of largest variance, the largest first."""
    rows = sample.compact
    mean = rows.scatter.moments.mean
    axes = rows.scatter.eigenbasis.leading(dims).flip(1)
    return torch.cat([(x - mean) @ axes for _, x in rows.blocks()])
