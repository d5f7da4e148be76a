"""Histograms of oriented gradients, batched (Dalal & Triggs, CVPR 2005).

Inside, the batch is the last dimension, so that every slice of rows, columns, cells or bins is contiguous over images.
Only elementwise operations, `index_select` and sums: the same on every run of a GPU, and not rounded by autocast.
"""

import math
from functools import lru_cache, reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.errors import UserError
from sslkit.priors.base import Prior

VERSION = 3  # part of every cache key: increase it when the features change
_PIXELS_AT_ONCE = {"cpu": 2**18, "cuda": 2**26}  # 1 MB of float32: what a core's cache holds; enough for a GPU


class HogPrior(Prior):
    """Histograms of oriented gradients at a fixed size, see `hog`. No download, no fit."""

    specified = False

    def __init__(self, name: str, *, size: int = 64) -> None:
        super().__init__(name)
        if size < 16 or size % 8:
            raise UserError(f"prior hog: prior_size must be a multiple of 8, at least 16, got {size}")
        self.size = size

    @classmethod
    def from_name(cls, name: str, *, size: int | None, precision: str) -> "HogPrior":
        return cls(name, size=size or 64)

    def extract(self, pixels: Tensor) -> Tensor:
        # the mean of the channels, several times as fast as `pixels.mean(1)` of one channel
        return hog(reduce(torch.add, pixels.unbind(1)) / pixels.shape[1], size=self.size, cells=8)

    @property
    def identity(self) -> str:
        return f"hog size={self.size} cells=8 version={VERSION}"


def hog(gray: Tensor, *, size: int | None = None, cells: int = 8, orientations: int = 9, clip: float = 0.2) -> Tensor:
    """(N, H, W) gray images -> (N, (cells - 1)^2 * 4 * orientations), float32, or float64 of float64.

    The shorter side is resized to `size`, antialiased bilinear, and the centre square cropped, as by
    `base.resize_and_crop`. size: a multiple of `cells`, default: the shorter side as it is.
    Central differences, zero at the border; unsigned orientations over pi, each pixel voting with its magnitude for
    the two nearest bins; the mean vote of each of cells x cells cells; blocks of 2 x 2 cells, stride 1, each
    l2-normalised, clipped at `clip` and normalised again.
    """
    gray = gray.to(torch.promote_types(gray.dtype, torch.float32))
    size = size or min(gray.shape[1:])
    features = gray.new_empty(len(gray), (cells - 1) ** 2 * 4 * orientations)
    at_once = max(1, _PIXELS_AT_ONCE.get(gray.device.type, 2**18) // size**2)
    # Made outside, the features are ordinary tensors: a loss may save them for its backward pass.
    with torch.inference_mode():
        for images, out in zip(gray.split(at_once), features.split(at_once), strict=True):
            bin, magnitude = _gradients(_centre_square(images, size), orientations)
            histograms = _histograms(bin, magnitude, cells, orientations)
            out.copy_(_blocks(histograms, clip).T)
    return features


def _centre_square(images: Tensor, size: int) -> Tensor:
    """(N, H, W) -> (size, size, N). The weights are positive, so that no value leaves the images' range."""
    count, height, width = images.shape
    shorter = min(height, width)
    kind = (size, images.dtype, images.device)
    images = _resample(images, 1, *_taps(height, size * height // shorter, *kind))
    images = images.flatten(1).T.contiguous().view(size, width, count)
    return _resample(images, 1, *_taps(width, size * width // shorter, *kind))


def _resample(images: Tensor, dim: int, indices: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums along `dim` of three: x_0 + sum of w_k (x_k - x_0), for indices and weights (K, size, 1).

    In this form an even area stays exactly even: normalised blocks would turn rounding errors there into features.
    """
    resampled = first = images.index_select(dim, indices[0])
    for index, weight in zip(indices[1:], weights[1:], strict=True):
        resampled = torch.addcmul(resampled, images.index_select(dim, index).sub_(first), weight)
    return resampled


@lru_cache(maxsize=64)
def _taps(length: int, resized: int, size: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Indices (K, size) and weights (K, size, 1): `resized` pixels out of `length`, the middle `size` of them."""
    unit = torch.eye(length, dtype=torch.float64)[None, None]
    matrix = F.interpolate(unit, (resized, length), mode="bilinear", antialias=True)[0, 0]
    matrix = matrix[round((resized - size) / 2) :][:size]
    used = [row.nonzero().flatten() for row in matrix]
    taps = torch.arange(max(int(row[-1] - row[0]) for row in used) + 1)[:, None]
    indices = torch.stack([row[0] for row in used]) + taps
    inside = indices < length
    indices = indices.clamp(max=length - 1)
    weights = matrix.T.gather(0, indices) * inside
    return indices.to(device), weights[:, :, None].to(device, dtype)


def _gradients(gray: Tensor, orientations: int) -> tuple[Tensor, Tensor]:
    """(S, S, N) -> place on the circle of bins, 0 <= place <= orientations, and magnitude, (S, S, N) each.

    Bin b is centred on place b, the angle (b + 1/2) pi / orientations.
    """
    dy, dx = torch.zeros_like(gray), torch.zeros_like(gray)
    torch.sub(gray[2:], gray[:-2], out=dy[1:-1])
    torch.sub(gray[:, 2:], gray[:, :-2], out=dx[:, 1:-1])
    half_turns = torch.atan2(dy, dx).mul_(1 / math.pi).sub_(0.5 / orientations)
    bin = half_turns.sub_(half_turns.floor()).mul_(orientations)
    square = dx.mul_(dx).addcmul_(dy, dy)
    # its root, zero of zero: torch.sqrt and torch.hypot are not vectorised on every processor
    magnitude = (square + torch.finfo(square.dtype).tiny).rsqrt_().mul_(square)
    return bin, magnitude


def _histograms(bin: Tensor, magnitude: Tensor, cells: int, orientations: int) -> Tensor:
    """(S, S, N) each -> mean votes (orientations, cells, cells, N).

    clamp(place - b, 0, 1) is the share of a vote for the bins above b; the difference of two successive ones is the
    share of one bin. Differences are taken after the sum over the cell.
    """
    side = len(bin) // cells
    bin = bin.view(cells, side, cells, side, bin.shape[-1])
    magnitude = magnitude.view_as(bin)
    sums = bin.new_empty(orientations + 1, *bin[:, 0].shape)
    torch.sum(magnitude, 1, out=sums[0])
    above = torch.empty_like(bin)
    for b in range(orientations):
        torch.sub(bin, b, out=above).clamp_(0, 1).mul_(magnitude)
        torch.sum(above, 1, out=sums[b + 1])
    sums = sums.sum(3).div_(side**2)
    histograms = sums[:-1] - sums[1:]
    histograms[0] += sums[-1]  # what is above the last bin is the first's
    return histograms


def _blocks(histograms: Tensor, clip: float) -> Tensor:
    """(orientations, cells, cells, N) -> ((cells - 1)^2 * orientations * 4, N), normalised, clipped, normalised."""
    orientations, cells, _, count = histograms.shape
    side = cells - 1
    energy = histograms.square().sum(0)
    energy = energy[1:] + energy[:-1]
    norm = (energy[:, 1:] + energy[:, :-1]).add_(1e-10).sqrt_()  # (side, side, N)
    limit = norm * clip
    blocks = histograms.new_empty(side, side, orientations, 4, count)
    for corner in range(4):
        y, x = divmod(corner, 2)
        block = histograms[:, y : y + side, x : x + side]
        torch.minimum(block, limit, out=blocks[:, :, :, corner].permute(2, 0, 1, 3))
    blocks = blocks.view(side**2, orientations * 4, count)
    # of the blocks divided by the norm; the division itself is part of the last product
    norm = norm.view(side**2, 1, count)
    blocks *= (blocks.square().sum(1, keepdim=True) + 1e-10 * norm.square()).rsqrt_()
    return blocks.flatten(0, 1)
