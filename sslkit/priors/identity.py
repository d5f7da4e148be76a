"""The pixels themselves: the control of every prior (Si et al. 2025, arXiv 2508.13596, have it beside CLIP)."""

from torch import Tensor

from sslkit.errors import UserError
from sslkit.priors.base import Prior, resize_and_crop

VERSION = 1  # part of every cache key: increase it when the features change


class IdentityPrior(Prior):
    """The pixels of an image in a row. No download, no fit. size: None leaves images as they are."""

    specified = False

    def __init__(self, name: str, *, size: int | None = None) -> None:
        super().__init__(name)
        if size is not None and size < 1:
            raise UserError(f"prior identity: prior_size must be at least 1, got {size}")
        self.size = size

    @classmethod
    def from_name(cls, name: str, *, size: int | None, precision: str) -> "IdentityPrior":
        return cls(name, size=size)

    def extract(self, pixels: Tensor) -> Tensor:
        return resize_and_crop(pixels, self.size, "bilinear") if self.size else pixels

    @property
    def identity(self) -> str:
        return f"identity size={self.size} version={VERSION}"
