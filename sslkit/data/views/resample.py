"""Random resized crop, flip and Gaussian blur as one separable resampling: out = Wy @ image @ Wx^T.

The crop follows torchvision's RandomResizedCrop (Szegedy et al. 2015, arXiv 1409.4842); the filter is the triangle
of PIL and torchvision, which widens when downsampling, so that small outputs are antialiased.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

TRIES = 10  # boxes that torchvision draws before it uses the central one
BOX_UNIFORMS = 2 * TRIES + 2
BLOCK = 32  # outputs of a blur that are computed by one matrix product


def draw_boxes(
    uniform: Tensor, scale: tuple[float, float], ratio: tuple[float, float], height: int, width: int, aspect: Tensor
) -> Tensor:
    """Boxes (N, 4) as top, left, height, width in whole pixels: the first of ten tries that fits, or the central one.

    uniform: (N, BOX_UNIFORMS) in [0, 1).
    scale: range of the box's share of the image's area, uniform. ratio: range of its width / height, log-uniform.
    aspect: (N,) width / height of the original image, before it was squashed to (height, width).
    """
    uniform, aspect = uniform.double(), aspect.double()[:, None]
    area, shape, position = uniform.split([TRIES, TRIES, 2], dim=1)
    size, fits = _first_fit(area[:, :1], shape[:, :1], scale, ratio, height, width, aspect)
    (missed,) = (~fits[:, 0]).nonzero(as_tuple=True)  # a few, of which the other tries are computed
    if len(missed):
        size[missed], fits[missed] = _first_fit(
            area[missed], shape[missed], scale, ratio, height, width, aspect[missed]
        )
    room = torch.tensor([height, width]) + 1 - size
    boxes = torch.cat([(position * room).floor(), size], 1)
    return torch.where(fits, boxes, _central_boxes(aspect, ratio, height, width)) if len(missed) else boxes


def _first_fit(
    area: Tensor,
    shape: Tensor,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    height: int,
    width: int,
    aspect: Tensor,
) -> tuple[Tensor, Tensor]:
    """Height and width (N, 2) of the first try that fits, and whether one does (N, 1).

    area, shape: (N, tries) uniforms. aspect: (N, 1). Other arguments: `draw_boxes`.
    """
    area = height * width * (scale[0] + (scale[1] - scale[0]) * area)
    low, high = (math.log(end) for end in ratio)
    shape = (low + (high - low) * shape).exp() * (width / height) / aspect  # width / height in stored pixels
    w, h = (area * shape).sqrt().round(), (area / shape).sqrt().round()
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = fits.to(torch.uint8).argmax(1, keepdim=True)  # the first of equal maxima
    return torch.cat([h.gather(1, first), w.gather(1, first)], 1), fits.any(1, keepdim=True)


def _central_boxes(aspect: Tensor, ratio: tuple[float, float], height: int, width: int) -> Tensor:
    """The largest centred boxes (N, 4) with an allowed ratio. aspect: (N, 1)."""
    h = (height * aspect / ratio[0]).clamp(max=height).round().clamp(min=1)
    w = (width * ratio[1] / aspect).clamp(max=width).round().clamp(min=1)
    return torch.cat([((height - h) / 2).floor(), ((width - w) / 2).floor(), h, w], 1)


def axis_weights(start: Tensor, length: Tensor, size: int, window: range, flip: Tensor | None = None) -> Tensor:
    """Weights (N, size, len(window)) that resample the interval [start, start + length) of one axis to `size`.

    start, length: (N,) whole pixels. window: the pixels of the axis from the first start to the last end.
    flip: (N,) 1 if the output is mirrored. Rows sum to 1.
    """
    # Distances in whole numbers of 1 / (2 size) pixels from `start`: nothing is rounded before the last division.
    at = torch.arange(1, 2 * size, 2, device=start.device, dtype=start.dtype)
    at = at if flip is None else torch.where(flip[:, None] > 0, 2 * size - at, at)
    pixel = torch.arange(window.start, window.stop, device=start.device, dtype=start.dtype)
    centre = (2 * (pixel - start[:, None]) + 1) * size
    distance = centre[:, None] - (at * length[:, None])[:, :, None]
    support = 2 * length.clamp(min=size)
    weights = (support[:, None, None] - distance.abs_()).relu_()
    if len(start) > 1:  # one interval fills its window
        inside = (pixel >= start[:, None]) & (pixel < (start + length)[:, None])
        weights.mul_(inside[:, None].float())
    return weights.div_(weights.sum(-1, keepdim=True))


def blur_matrix(sigma: Tensor, size: int, longest: float) -> Tensor:
    """Gaussian blur of an axis as (N, size, size) matrices, the axis mirrored at its ends; rows sum to 1.

    sigma: (N,) in pixels; 0 gives the identity. longest: an upper bound of sigma.
    """
    reach = min(math.ceil(4 * longest), size)
    band = _band(sigma, size, reach)
    matrix = band[:, :, reach : reach + size].contiguous()
    matrix[:, :, :reach] += band[:, :, :reach].flip(2)
    matrix[:, :, size - reach :] += band[:, :, size + reach :].flip(2)
    return matrix


def _band(sigma: Tensor, size: int, reach: int) -> Tensor:
    """Gaussian weights (N, size, size + 2 reach) of neighbouring outputs; the first is centred on column `reach`."""
    tap = torch.arange(-reach, reach + 1, device=sigma.device, dtype=sigma.dtype)
    exponent = -0.5 * (tap / sigma.clamp(min=1e-3)[:, None]).square()
    # Exactly 0 below exp(-20): denormal numbers slow a matrix product many times over.
    taps = F.threshold(exponent, -20.0, -math.inf).exp()
    taps = taps / taps.sum(1, keepdim=True)
    length = size + 2 * reach
    # Rows of length + 1 read as rows of length: each starts one to the right of the row above.
    band = F.pad(taps, (0, size))[:, None].expand(-1, size, -1).flatten(1)
    return band[:, : size * length].view(-1, size, length)


def blur(pixels: Tensor, sigma: Tensor, longest: float) -> Tensor:
    """Gaussian blur (N, C, H, H) -> (N, C, H, H) float32, the same as by `blur_matrix` on both axes.

    Done in blocks of outputs, since few pixels are within reach of one: a fifth of the products at 224 pixels.
    """
    n, channels, size, _ = pixels.shape
    reach = min(math.ceil(4 * longest), size)
    block = min(BLOCK, size)
    seen, count = block + 2 * reach, -(-size // block)
    band = _band(sigma, block, reach)  # (N, block, seen)
    wide = _mirror_ends(pixels, 3, reach, count * block).unfold(3, seen, block)
    wide = torch.bmm(wide.reshape(n, -1, seen), band.mT).view(n, channels, size, -1)
    tall = _mirror_ends(wide[..., :size], 2, reach, count * block).unfold(2, seen, block)  # (N, C, count, size, seen)
    out = torch.matmul(band[:, None, None], tall.mT)
    return out.view(n, channels, -1, size)[:, :, :size]


def _mirror_ends(pixels: Tensor, dim: int, reach: int, length: int) -> Tensor:
    """The axis with `reach` mirrored pixels on both sides, and zeros up to length + 2 reach."""
    size = pixels.shape[dim]
    before, after = (pixels.narrow(dim, start, reach).flip(dim) for start in (0, size - reach))
    shape = list(pixels.shape)
    shape[dim] = length - size
    return torch.cat([before, pixels, after, pixels.new_zeros(shape)], dim)


def resample(pixels: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows @ pixels @ columns^T for every image and channel, in float32.

    pixels: (N, C, H, W) of any type, or (N, C, T, H, W): all frames of a clip equally. rows: (N, size, H).
    columns: (N, size, W). Returns (N, C, size, size), or (N, C, T, size, size).
    """
    n, *planes, height, width = pixels.shape
    size, count = rows.shape[1], math.prod(planes)
    wide = torch.bmm(pixels.float().reshape(n, count * height, width), columns.mT)
    wide = wide.view(n, count, height, size)
    out = wide.new_empty(n, count, size, size)
    for plane in range(count):
        torch.bmm(rows, wide[:, plane], out=out[:, plane])
    return out.view(n, *planes, size, size)
