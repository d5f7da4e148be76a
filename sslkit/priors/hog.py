"""Histograms of oriented gradients at a fixed size."""

from torch import Tensor

from sslkit.errors import UserError
from sslkit.priors import _hog
from sslkit.priors.base import Prior, resize_and_crop


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
        return _hog.hog(resize_and_crop(pixels, self.size, "bilinear").mean(1), cells=8)

    @property
    def identity(self) -> str:
        return f"hog size={self.size} cells=8 version={_hog.VERSION}"
