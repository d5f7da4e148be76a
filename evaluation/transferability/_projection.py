"""Rows in the coordinates of their principal axes, of the scatter that a sample's metrics share."""

import torch
from torch import Tensor

from evaluation.transferability._scatter import Scatter
from evaluation.transferability.base import Sample


def rank(scatter: Scatter) -> int:
    """How many directions the rows spread over: eigenvalues above rounding."""
    return int(scatter.varies.sum())


def principal_coordinates(sample: Sample, dims: int) -> Tensor:
    """(N, dims) float64 the centred rows on the `dims` axes of largest variance, the largest first."""
    rows = sample.compact
    mean = rows.scatter.moments.mean
    axes = rows.scatter.eigenbasis.leading(dims).flip(1)
    return torch.cat([(x - mean) @ axes for _, x in rows.blocks()])
