"""Frozen priors: what an auxiliary model says about images, as (N, A) float32 features without gradient."""

import hashlib
import logging
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.errors import UserError
from sslkit.members import nearest
from sslkit.regularizers.dsa import hog

KINDS = ("clip", "timm", "hog", "pca", "features")
PRECISIONS = ("float32", "bfloat16")

log = logging.getLogger(__name__)


class Prior:
    """Maps (N, C, H, W) images, uint8 or float in [0, 1], to (N, A) features on the images' device.

    Not an nn.Module, so that whoever holds it neither trains, saves nor switches it to train mode.
    name: how the user wrote it. needs_fit: whether `fit` must see the data set's images first.
    """

    needs_fit = False

    def __init__(self, name: str) -> None:
        self.name = name

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        pixels = images.float() / 255 if images.dtype == torch.uint8 else images.float()
        features = self.extract(pixels).flatten(1).float()
        if len(features) != len(images):
            raise UserError(f"prior {self.name} gave {len(features)} rows of features for {len(images)} images")
        return features

    def extract(self, pixels: Tensor) -> Tensor:
        """Float (N, C, H, W) in [0, 1] to (N, ...)."""
        raise NotImplementedError

    def fit(self, images: Tensor) -> None:
        """Learns from clean images, (N, C, H, W), where `needs_fit`."""

    @property
    def identity(self) -> str | None:
        """Two priors of one identity give the same features; None where that cannot be known."""
        return None


class NetworkPrior(Prior):
    """A frozen network in eval mode, with its own resize and normalisation.

    network: maps normalised (N, 3, size, size) to (N, A). mean, std: of the three channels.
    precision: "bfloat16" runs the network under autocast.
    """

    def __init__(
        self,
        name: str,
        network: torch.nn.Module,
        *,
        size: int,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        interpolation: str = "bicubic",
        precision: str = "float32",
    ) -> None:
        super().__init__(name)
        self.network = network.eval().requires_grad_(False)
        self.size, self.mean, self.std = size, mean, std
        self.interpolation = "bilinear" if interpolation == "bilinear" else "bicubic"
        self.precision = precision
        self._device: torch.device | None = None

    def extract(self, pixels: Tensor) -> Tensor:
        if pixels.device != self._device:
            self.network.to(pixels.device)
            self._device = pixels.device
        x = resize_and_crop(rgb(pixels, self.name), self.size, self.interpolation)
        x = (x - x.new_tensor(self.mean).view(-1, 1, 1)) / x.new_tensor(self.std).view(-1, 1, 1)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            return self.network(x)

    @cached_property
    def identity(self) -> str:
        digest = hashlib.sha256(repr((self.size, self.mean, self.std, self.interpolation, self.precision)).encode())
        for name, value in self.network.state_dict().items():
            digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return f"{type(self.network).__name__} {digest.hexdigest()}"


class HogPrior(Prior):
    """Histograms of oriented gradients at a fixed size, see `hog.hog`. No download, no fit."""

    def __init__(self, name: str, *, size: int = 64) -> None:
        super().__init__(name)
        if size < 16 or size % 8:
            raise UserError(f"prior hog wants a size that is a multiple of 8, at least 16, not prior_size={size}")
        self.size = size

    def extract(self, pixels: Tensor) -> Tensor:
        return hog.hog(resize_and_crop(pixels, self.size, "bilinear").mean(1), cells=8)

    @property
    def identity(self) -> str:
        return f"hog size={self.size} cells=8 version={hog.VERSION}"


class PcaPrior(Prior):
    """The leading principal components of the clean pixels, at most `size` pixels a side; `fit` learns them.

    Before `fit`, and said once, the pixels themselves.
    """

    needs_fit = True
    most_images = 10_000

    def __init__(self, name: str, *, components: int = 50, size: int = 32) -> None:
        super().__init__(name)
        self.components, self.size = components, size
        self.mean: Tensor | None = None
        self.basis: Tensor | None = None
        self._said = False

    def _pixels(self, pixels: Tensor) -> Tensor:
        height, width = pixels.shape[-2:]
        if (self.basis is not None or max(height, width) > self.size) and height != width:
            pixels = resize_and_crop(pixels, min(self.size, height, width), "bilinear")
        elif max(height, width) > self.size:
            pixels = resize_and_crop(pixels, self.size, "bilinear")
        return pixels.flatten(1)

    def fit(self, images: Tensor) -> None:
        from sklearn.decomposition import PCA

        x = self._pixels(images.float() / 255 if images.dtype == torch.uint8 else images.float()).cpu()
        model = PCA(min(self.components, *x.shape), svd_solver="randomized", random_state=0).fit(x.numpy())
        self.mean = torch.from_numpy(model.mean_).float()
        self.basis = torch.from_numpy(model.components_.T.copy()).float()

    def extract(self, pixels: Tensor) -> Tensor:
        x = self._pixels(pixels)
        if self.basis is None:
            if not self._said:
                log.warning("prior pca has seen no data set (DSA.prepare), so it compares the pixels themselves")
                self._said = True
            return x
        return (x - self.mean.to(x)) @ self.basis.to(x)
