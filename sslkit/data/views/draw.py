"""The random numbers of the views of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import groupby

import torch
from torch import Tensor

from sslkit.data.views import color, resample
from sslkit.data.views.recipe import View
from sslkit.runtime import draws


def to_device(parts: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Copies of float32 tensors of the CPU, in one transfer, to a GPU without waiting."""
    flat = torch.cat([tensor.flatten() for tensor in parts])
    flat = flat.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else flat.to(device)
    pieces = flat.split([tensor.numel() for tensor in parts])
    return [piece.view(tensor.shape) for piece, tensor in zip(pieces, parts, strict=True)]


@dataclass(frozen=True)
class Draw:
    """The random numbers for one view of N images or clips."""

    box: Tensor  # (N, 4) top, left, height, width
    flip: Tensor  # (N,) 1 for flipped
    sigma: Tensor  # (N,) 0 for not blurred
    threshold: Tensor  # (N,) 2 for not solarised
    deviation: Tensor  # (N, C, C), see color.py
    mean: Tensor  # (N, C, C)

    def __getitem__(self, rows: slice) -> "Draw":
        return Draw(*(getattr(self, field.name)[rows] for field in fields(self)))


def copies(drawn: Sequence[Draw], device: torch.device) -> Sequence[Draw]:
    """The draws on the device of the pixels, in one transfer."""
    if device.type == "cpu":
        return drawn
    names = [field.name for field in fields(Draw)]
    pieces = iter(to_device([getattr(draw, name) for draw in drawn for name in names], device))
    return [Draw(*(next(pieces) for _ in names)) for _ in drawn]


_COLUMNS = [resample.BOX_UNIFORMS, 1, 1, 4, 4, 1, 1, 1, 1]  # uniforms for each part of a draw


def _draw(view: View, uniform: Tensor, shape: Sequence[int], aspect: Tensor, unit: float) -> Draw:
    """Turn rows of uniforms (N, sum(_COLUMNS)) into one view. unit: the pixel value of white."""
    box, flip, jitter, strengths, order, grayscale, blur, sigma, solarize = uniform.split(_COLUMNS, dim=1)
    channels, height, width = shape
    low, high = view.sigma
    maps = _colors(view, jitter[:, 0] < view.jitter, strengths, order, grayscale[:, 0] < view.grayscale, channels)
    return Draw(
        box=resample.draw_boxes(box, view.scale, view.ratio, height, width, aspect).float(),
        flip=(flip[:, 0] < view.flip).float(),
        sigma=torch.where(blur < view.blur, low + (high - low) * sigma, 0)[:, 0],
        threshold=torch.where(solarize < view.solarize, view.threshold, 2.0)[:, 0],
        deviation=maps[0] / unit,
        mean=maps[1] / unit,
    )


def _colors(view: View, jittered: Tensor, strengths: Tensor, order: Tensor, grayed: Tensor, channels: int) -> Tensor:
    """The maps (2, N, C, C) of jitter in random order, then grayscale."""
    most = torch.tensor([view.brightness, view.contrast, view.saturation, view.hue])
    changes = (2 * strengths - 1) * jittered[:, None] * most
    brightness, contrast, saturation, turn = (changes + torch.tensor([1.0, 1, 1, 0])).unbind(1)
    return color.chain(brightness, contrast, saturation, turn, grayed.float(), order, channels)


def draw_views(
    views: Sequence[View], images: Tensor, generator: torch.Generator, aspect: Tensor | None, rank: int, world_size: int
) -> list[Draw]:
    """One draw of each view for each of N images (N, C, H, W) or clips (N, C, T, H, W); other arguments: `augment`."""
    n, channels, *_, height, width = images.shape
    unit = 255.0 if images.dtype == torch.uint8 else 1.0
    aspect = torch.full((n,), width / height) if aspect is None else aspect.cpu()
    rows = range(rank, n * world_size, world_size)
    drawn = []
    for view, alike in groupby(views):  # a draw of each, whatever views follow
        uniform = [draws.uniform(rows, (sum(_COLUMNS),), generator) for _ in alike]
        joined = _draw(view, torch.cat(uniform), (channels, height, width), aspect.repeat(len(uniform)), unit)
        drawn += [joined[start : start + n] for start in range(0, n * len(uniform), n)]
    return drawn
