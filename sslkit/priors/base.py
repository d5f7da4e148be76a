"""The contract of every prior: (N, A) float32 features of images, without gradient."""

from collections.abc import Mapping
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.backbones import norm_statistics
from sslkit.backbones.base import feature_map
from sslkit.data.loader import read_spaced
from sslkit.data.resizing import centre, fit_size
from sslkit.embeddings import Maps
from sslkit.errors import UserError
from sslkit.priors._structure import digest_of
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import autocast, to_device_of

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images

CONTRACT = "Prior"
VERSION = 3  # of a network's preprocessing and digest, part of every cache key: increase it when the features change
_FRAMES_AT_ONCE = 256  # of clips: 150 MB of float32 at 224 pixels
ROWS_READ = 4096  # of a file of features, at once


class Prior:
    """Maps (N, C, H, W) images, uint8 or float in [0, 1], to (N, A) features on the images' device.

    For clips, (N, C, T, H, W) or R per video, (N, R, C, T, H, W), the features are the mean over the frames.
    Not an nn.Module, so that a parent module neither trains, saves nor switches it to train mode.
    name: as given by the user. needs_fit: True if `fit` must be called with images of the data set first.
    specified: True if its name takes a specification after a colon, as in `timm:NAME`. resizes: False if it has no
        input size, so that a prior_size would change nothing.
    """

    needs_fit: ClassVar[bool] = False
    specified: ClassVar[bool] = True
    resizes: ClassVar[bool] = True

    def __init__(self, name: str) -> None:
        self.name = name

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        if images.dim() > 4:
            return self._mean_over_frames(images if images.dim() == 6 else images[:, None])
        features = self.extract(to_float(images)).flatten(1).float()
        if len(features) != len(images):
            raise UserError(f"prior {self.name} returned {len(features)} rows of features for {len(images)} images")
        return features

    def _mean_over_frames(self, clips: Tensor) -> Tensor:
        """(N, R, C, T, H, W) -> (N, A), a few videos at a time, since float frames take four times the memory."""
        frames = clips.shape[1] * clips.shape[3]
        parts = []
        for videos in clips.split(max(1, _FRAMES_AT_ONCE // frames)):
            features = self(videos.transpose(2, 3).flatten(0, 2))
            parts.append(features.unflatten(0, (len(videos), frames)).mean(1))
        return torch.cat(parts)

    def extract(self, pixels: Tensor) -> Tensor:
        """Float (N, C, H, W) in [0, 1] to (N, ...)."""
        raise NotImplementedError

    @classmethod
    def from_name(cls, name: str, *, size: int | None, precision: str) -> "Prior":
        """Build the prior from `name`, with its specification after a colon. size, precision: see `build`."""
        raise NotImplementedError

    def check(self, dataset: "Images") -> None:
        """Raises UserError for a data set that the prior cannot be the prior of."""

    def fit(self, images: Tensor) -> None:
        """Fit to clean images, (N, C, H, W), if `needs_fit`."""

    @property
    def identity(self) -> str | None:
        """A key that is equal only for priors with equal features; None if unknown."""
        return None


class NetworkPrior(Prior):
    """A frozen network in eval mode, with its own resize and normalisation.

    network: maps normalised (N, channels, size, size) to (N, A).
    config: its size, mean, std, and maybe channels, interpolation and resize_mode, in timm's and open_clip's form.
    size: None is the network's. precision: "bfloat16" runs the network under autocast; None
        runs `maps` in the precision of the caller.
    is_ready_made: False for weights of a zoo entry, whose card tells its preprocessing.
    """

    is_ready_made: bool = True

    def __init__(
        self,
        name: str,
        network: torch.nn.Module,
        config: Mapping[str, Any],
        *,
        size: int | None = None,
        precision: str | None = Runtime.precision,
    ) -> None:
        super().__init__(name)
        self.network = network.eval().requires_grad_(False)
        self.size, self.mean, self.std = size or config["size"], tuple(config["mean"]), tuple(config["std"])
        self.channels = config.get("channels", 3)
        self.interpolation = "bilinear" if config.get("interpolation") == "bilinear" else "bicubic"
        self.is_squashed = config.get("resize_mode") == "squash"
        self.precision = precision
        self._device: torch.device | None = None
        self._normal: tuple[Tensor, Tensor] | None = None
        self._seen: tuple[Tensor, Maps] | None = None

    def check(self, dataset: "Images") -> None:
        """Warn of weights of others whose batch normalisation contradicts the images."""
        if self.is_ready_made and norm_statistics.has_statistics(self.network, dataset.item):
            pixels = self._resize(self._of_channels(to_float(read_spaced(dataset, norm_statistics.IMAGES))))
            finding = norm_statistics.contradiction(self.network, pixels, self.mean, self.std)
            norm_statistics.warn(f"prior {self.name}", finding)

    def extract(self, pixels: Tensor) -> Tensor:
        if self._seen is not None and self._seen[0] is pixels:
            return self._seen[1].pooled
        x = self._input(pixels)
        with autocast(self.precision, x.device):
            return self.network(x)

    @torch.no_grad()
    def maps(self, pixels: Tensor) -> Maps:
        """The last feature map and the pooled features of a view (N, C, H, W) in [0, 1], fp32.

        The last view's are kept: all that read the same prior share one pass. Raises UserError for a network without.
        """
        if self._seen is None or self._seen[0] is not pixels:
            x = self._input(pixels)
            with nullcontext() if self.precision is None else autocast(self.precision, x.device):
                patches, pooled = feature_map(self.network, x, f"prior {self.name}")
            self._seen = pixels, Maps(patches.float(), pooled.float())
        return self._seen[1]

    def _input(self, pixels: Tensor) -> Tensor:
        """Pixels (N, C, H, W) in [0, 1] resized and normalised as the network was trained on."""
        if pixels.device != self._device:
            self.network.to(pixels.device)
            self._device = pixels.device
            self._normal = tuple(
                to_device_of(pixels.new_tensor(x, device="cpu").view(-1, 1, 1), pixels) for x in (self.mean, self.std)
            )
        mean, std = self._normal
        return (self._resize(self._of_channels(pixels)) - mean) / std

    def _resize(self, pixels: Tensor) -> Tensor:
        return resize_and_crop(pixels, self.size, self.interpolation, squash=self.is_squashed)

    def _of_channels(self, pixels: Tensor) -> Tensor:
        """Pixels with the network's channels: gray (N, 1, H, W) is repeated for three. Raises UserError for others."""
        channels = pixels.shape[1]
        if self.channels == 3 and channels not in (1, 3):
            raise UserError(
                f"prior {self.name} takes gray or RGB images, not {channels} channels: use prior=pca or hog"
            )
        if self.channels not in (3, channels):
            convert = ": data.channels=1 converts them" if self.channels == 1 else ""
            plural = "s" * (self.channels > 1)
            raise UserError(
                f"prior {self.name} takes images of {self.channels} channel{plural}, not {channels}{convert}"
            )
        return pixels.expand(-1, self.channels, -1, -1)

    @cached_property
    def identity(self) -> str:
        about = (
            VERSION,
            self.size,
            self.mean,
            self.std,
            self.interpolation,
            self.precision,
            *["squash"] * self.is_squashed,
        )
        return f"{about} {digest_of(self.network)}"


def to_float(images: Tensor) -> Tensor:
    """Convert uint8 to float in [0, 1]; floats are returned unchanged."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def resize_and_crop(pixels: Tensor, size: int, interpolation: str, *, squash: bool = False) -> Tensor:
    """Resize the shorter side to `size`, antialiased, then crop the centre square; values stay in [0, 1].

    The longer side is rounded down, and the middle to even, as torchvision's Resize and CenterCrop do. squash: resize
    both sides to `size`, so that nothing is cut off.
    """
    height, width = pixels.shape[-2:]
    shape = fit_size(height, width, size, "squash" if squash else "crop")
    if shape != (height, width):
        pixels = F.interpolate(pixels, shape, mode=interpolation, antialias=True, align_corners=False).clamp_(0, 1)
    top, left = centre(*shape, size)
    return pixels[..., top : top + size, left : left + size]


def check_varied(name: str, array: np.ndarray) -> None:
    """Raises UserError if all rows of features are equal; as a rule it reads a few of them. name: of the prior."""
    blocks = (array[start : start + ROWS_READ] for start in range(0, len(array), ROWS_READ))
    if len(array) > 1 and not any((block != array[0]).any() for block in blocks):
        raise UserError(f"prior {name} has the same features for all images: nothing can be learned from it")
