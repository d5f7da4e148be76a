"""Frozen priors: what an auxiliary model says about images, as (N, A) float32 features without gradient."""

import hashlib
import warnings
from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.errors import UserError
from sslkit.members import nearest
from sslkit.regularizers.dsa.priors import _hog as hog

KINDS = ("clip", "timm", "hog", "pca", "features")
PRECISIONS = ("float32", "bfloat16")
_FRAMES_AT_ONCE = 256


class Prior:
    """Maps (N, C, H, W) images, uint8 or float in [0, 1], to (N, A) features on the images' device.

    Of clips, (N, C, T, H, W) or R of each video, (N, R, C, T, H, W), the features are the mean over the frames.
    Not an nn.Module, so that whoever holds it neither trains, saves nor switches it to train mode.
    name: how the user wrote it. needs_fit: whether `fit` must see the data set's images first.
    """

    needs_fit = False

    def __init__(self, name: str) -> None:
        self.name = name

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        if images.dim() > 4:
            return self._mean_over_frames(images if images.dim() == 6 else images[:, None])
        features = self.extract(to_float(images)).flatten(1).float()
        if len(features) != len(images):
            raise UserError(f"prior {self.name} gave {len(features)} rows of features for {len(images)} images")
        return features

    def _mean_over_frames(self, clips: Tensor) -> Tensor:
        """(N, R, C, T, H, W) -> (N, A), a few videos at a time: as floats, their frames take four times the room."""
        frames = clips.shape[1] * clips.shape[3]
        parts = []
        for videos in clips.split(max(1, _FRAMES_AT_ONCE // frames)):
            features = self(videos.transpose(2, 3).flatten(0, 2))
            parts.append(features.unflatten(0, (len(videos), frames)).mean(1))
        return torch.cat(parts)

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
        self.side: int | None = None
        self._said = False

    def _pixels(self, pixels: Tensor) -> Tensor:
        side = self.side or min(self.size, *pixels.shape[-2:])
        return resize_and_crop(pixels, side, "bilinear").flatten(1)

    def shrunk(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> float in [0, 1] at the side that `fit` looks at, where it changes nothing more."""
        return resize_and_crop(to_float(images), min(self.size, *images.shape[-2:]), "bilinear")

    def fit(self, images: Tensor) -> None:
        x = self._pixels(to_float(images))
        self.mean = x.mean(0)
        rank = min(self.components, *x.shape)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            # ten columns more than are wanted, and four passes, make the randomised basis exact to 1e-3
            _, _, basis = torch.svd_lowrank(x - self.mean, min(rank + 10, *x.shape), niter=4)
        self.basis = basis[:, :rank].contiguous()
        self.side = min(self.size, *images.shape[-2:])

    def extract(self, pixels: Tensor) -> Tensor:
        x = self._pixels(pixels)
        if self.basis is not None:
            return (x - self.mean.to(x)) @ self.basis.to(x)
        if not self._said:
            warnings.warn("prior pca saw no data set (DSA.prepare): it compares plain pixels", stacklevel=2)
            self._said = True
        return x

    @property
    def identity(self) -> str:
        """Of the recipe: what `fit` learns follows from it and the data set."""
        return f"pca components={self.components} size={self.size} images={self.most_images}"


class FilePrior(Prior):
    """Features from a .npy file, row = the image's index in the data set; opened, not read, until needed."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name)
        try:
            self.array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise UserError(f"prior {name}: cannot open {path} as .npy: {error}") from error
        if self.array.ndim != 2 or self.array.dtype.kind != "f":
            raise UserError(
                f"prior {name} wants floats (images, features), {path} is {self.array.dtype} {self.array.shape}"
            )

    def extract(self, pixels: Tensor) -> Tensor:
        raise UserError(f"prior {self.name} knows images by their row only, so it cannot see views: use mode=cached")


class CallablePrior(Prior):
    """Any function of float images (N, C, H, W) in [0, 1] to (N, A); modules are kept frozen and in eval mode."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__(getattr(function, "__qualname__", type(function).__name__))
        if isinstance(function, torch.nn.Module):
            function = function.eval().requires_grad_(False)
        self.function = function

    def extract(self, pixels: Tensor) -> Tensor:
        if isinstance(self.function, torch.nn.Module):
            self.function.to(pixels.device)
        return self.function(pixels)


def build_prior(
    prior: str | Callable[[Tensor], Tensor] | Prior, *, size: int | None = None, precision: str = "float32"
) -> Prior:
    """The prior that a name stands for.

    clip[:MODEL[:PRETRAINED]] (open_clip; a tag, or a local file of weights), timm:NAME[:FILE] (downloaded, or a
    local state dict), hog, pca, features:FILE.npy, or any function images -> (N, A).
    size: side in pixels at which the prior looks; None is its own. precision: of a network, see `NetworkPrior`.
    Raises UserError for an unknown name, or weights that cannot be had.
    """
    if precision not in PRECISIONS:
        raise UserError(f"prior_precision={precision!r} is not possible: {nearest(precision, PRECISIONS)}")
    if isinstance(prior, Prior):
        return prior
    if callable(prior):
        return CallablePrior(prior)
    kind, _, rest = prior.partition(":")
    if kind not in KINDS or (rest and kind in ("hog", "pca")):
        raise UserError(f"there is no prior {prior!r}: {nearest(kind, KINDS)}")
    if kind in ("clip", "timm"):
        from sslkit.regularizers.dsa.priors import clip as networks

        return networks.build(prior, size=size, precision=precision)
    if kind == "features":
        return FilePrior(prior, rest)
    return HogPrior(prior, size=size or 64) if kind == "hog" else PcaPrior(prior, size=size or 32)


def to_float(images: Tensor) -> Tensor:
    """uint8 becomes float in [0, 1]; floats are taken to be there already."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def rgb(pixels: Tensor, name: str) -> Tensor:
    """Gray (N, 1, H, W) repeated to three channels; three stay. Raises UserError for other counts."""
    channels = pixels.shape[1]
    if channels not in (1, 3):
        raise UserError(f"prior {name} sees gray or RGB images, not {channels} channels: use prior=pca or hog")
    return pixels.expand(-1, 3, -1, -1)


def resize_and_crop(pixels: Tensor, size: int, interpolation: str) -> Tensor:
    """The shorter side to `size`, antialiased, then the centre square; values stay in [0, 1]."""
    height, width = pixels.shape[-2:]
    if min(height, width) != size:
        scale = size / min(height, width)
        shape = [max(size, round(height * scale)), max(size, round(width * scale))]
        pixels = F.interpolate(pixels, shape, mode=interpolation, antialias=True, align_corners=False).clamp_(0, 1)
    top, left = ((length - size) // 2 for length in pixels.shape[-2:])
    return pixels[..., top : top + size, left : left + size]
