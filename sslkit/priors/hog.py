"""Histograms of oriented gradients at a fixed size."""

from functools import reduce

import torch
from torch import Tensor

from sslkit.errors import UserError
from sslkit.priors import _hog
from sslkit.priors.base import Prior


class HogPrior(Prior):
    """Histograms of oriented gradients at a fixed size, see `_hog.hog`. No download, no fit."""

    specified = False

    def __init__(self, name: str, *, size: int = 64) -> None:
        super().__init__(name)
        if size < 16 or size % 8:
            raise UserError(f"prior hog: prior_size must be a multiple of 8, at least 16, got {size}")
        self.size = size

    @classmethod
    def named(cls, name: str, *, size: int | None, precision: str) -> "HogPrior":
        return cls(name, size=size or 64)

    def extract(self, pixels: Tensor) -> Tensor:
        return _hog.hog(_mean_of_channels(pixels), size=self.size, cells=8)

    @property
    def identity(self) -> str:
        return f"hog size={self.size} cells=8 version={_hog.VERSION}"


def _mean_of_channels(pixels: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, H, W); several times as fast as `pixels.mean(1)` of one channel."""
    return reduce(torch.add, pixels.unbind(1)) / pixels.shape[1]
