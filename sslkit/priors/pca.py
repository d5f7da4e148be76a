"""The leading principal components of the data set's own pixels."""

import math

import numpy as np
import torch
from torch import Tensor

from sslkit.priors.base import Prior, resize_and_crop, to_float
from sslkit.runtime.device import to_device_of, use_seed
from sslkit.terminal import say


class PcaPrior(Prior):
    """The leading principal components of the clean pixels, at most `size` pixels a side, computed by `fit`.

    Before `fit` the features are the pixels, with one warning.
    """

    needs_fit = True
    specified = False
    most_images = 10_000

    def __init__(self, name: str, *, components: int = 50, size: int = 32) -> None:
        super().__init__(name)
        self.components, self.size = components, size
        self.mean: Tensor | None = None
        self.basis: Tensor | None = None
        self.side: int | None = None
        self._placed: tuple[Tensor, Tensor] | None = None
        self._said = False

    @classmethod
    def from_name(cls, name: str, *, size: int | None, precision: str) -> "PcaPrior":
        return cls(name, size=size or 32)

    def _pixels(self, pixels: Tensor) -> Tensor:
        side = self.side or min(self.size, *pixels.shape[-2:])
        return resize_and_crop(pixels, side, "bilinear").flatten(1)

    def shrunk(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> float in [0, 1] at the input size of `fit`; idempotent."""
        return resize_and_crop(to_float(images), min(self.size, *images.shape[-2:]), "bilinear")

    def fit(self, images: Tensor) -> None:
        x = self._pixels(to_float(images))
        self.mean = x.mean(0)
        rank = min(self.components, *x.shape)
        with use_seed(0, x.device):
            # ten extra columns and four iterations make the randomised basis exact to 1e-3
            _, _, basis = torch.svd_lowrank(x - self.mean, min(rank + 10, *x.shape), niter=4)
        self.basis, self._placed = basis[:, :rank].contiguous(), None
        self.side = min(self.size, *images.shape[-2:])

    def components_of_fit(self) -> np.ndarray:
        """Return what `fit` has found, (1 + rank, C * side^2) float32: the mean, then the components."""
        return torch.cat([self.mean[None], self.basis.T]).numpy()

    def restore(self, fitted: np.ndarray, channels: int) -> None:
        """Restore an earlier fit to images of these channels, from its `components_of_fit`."""
        fitted = torch.from_numpy(np.array(fitted))
        self.mean, self.basis, self._placed = fitted[0], fitted[1:].T.contiguous(), None
        self.side = math.isqrt(len(self.mean) // channels)

    def extract(self, pixels: Tensor) -> Tensor:
        x = self._pixels(pixels)
        if self.basis is not None:
            mean, basis = self._beside(x)
            return (x - mean) @ basis
        if not self._said:
            say.warn("prior pca was fitted to no data set (call Method.prepare): using plain pixels", stacklevel=2)
            self._said = True
        return x

    def _beside(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and basis on the device and in the precision of x; a copy for each view would wait for a GPU."""
        if self._placed is None or self._placed[0].device != x.device or self._placed[0].dtype != x.dtype:
            self._placed = to_device_of(self.mean.to(x.dtype), x), to_device_of(self.basis.to(x.dtype), x)
        return self._placed

    @property
    def identity(self) -> str:
        """A key of the recipe, which determines the components together with the data set."""
        return f"pca components={self.components} size={self.size} images={self.most_images}"
