"""The colour chain (jitter in random order, then grayscale) as one linear map per image or clip.

Every operation maps an image's mean colour m (of a clip: over all its frames) by a matrix S, and the deviation of a
pixel from it by a matrix P; the two differ only for contrast, which shrinks the deviation and keeps the mean gray. So a
chain is two products of small matrices, computed before any pixel is touched, and the image is x -> P (x - m) + S m.

Two approximations, which hardly change the distribution of views (tests/data/test_view_statistics.py): values are
clamped to [0, 1] once, at the end, not after each operation; and hue is a rotation about the gray axis, not HSV's shift
along a hexagon. The rotation is done in RGB, with two thirds of the error of YIQ's.
"""

import math

import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as in PIL and torchvision


def brightness(factor: Tensor, channels: int) -> Tensor:
    """x -> f x. factor: (N,). Returns (2, N, C, C), the matrices P and S, as do all operations here."""
    matrix = factor[:, None, None] * torch.eye(channels)
    return torch.stack([matrix, matrix])


def contrast(factor: Tensor, channels: int) -> Tensor:
    """x -> f x + (1 - f) (mean gray of the image or clip)."""
    return torch.stack([brightness(factor, channels)[0], saturation(factor, channels)[0]])


def saturation(factor: Tensor, channels: int) -> Tensor:
    """x -> f x + (1 - f) gray(x): luma of three channels, otherwise their mean."""
    factor = factor[:, None, None]
    gray = torch.tensor(LUMA if channels == 3 else [1 / channels] * channels).expand(channels, channels)
    matrix = factor * torch.eye(channels) + (1 - factor) * gray
    return torch.stack([matrix, matrix])


def hue(turn: Tensor) -> Tensor:
    """Rotate three-channel colours about the gray axis R = G = B by `turn` (N,) in turns; 1/3 is red to green.

    The mean of the channels is kept. Equal to HSV's shift at thirds of a turn, close to it between them.
    """
    angle = 2 * math.pi * turn[:, None, None]
    across = torch.tensor([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / math.sqrt(3)  # v -> axis x v
    matrix = torch.eye(3) + angle.sin() * across + (1 - angle.cos()) * (across @ across)
    return torch.stack([matrix, matrix])


def compose(operations: Tensor, order: Tensor) -> Tensor:
    """Compose K operations (K, 2, N, C, C), applied to image i in the order order[i], into one (2, N, C, C) map.

    order: (N, K) a permutation for each image.
    """
    rows = torch.arange(order.shape[0])
    total, *rest = (operations[order[:, k], :, rows].transpose(0, 1) for k in range(order.shape[1]))
    for step in rest:
        total = step @ total
    return total


def apply(pixels: Tensor, deviation: Tensor, mean: Tensor, out: Tensor) -> Tensor:
    """P (x - m) + S m with m the mean colour of each image or clip, written to `out` and clamped to [0, 1].

    pixels, out: (N, C, H, W), or (N, C, T, H, W): a clip has one m, since with one per frame moving parts would change
    the colour of still ones. deviation: (N, C, C), P. mean: (N, C, C), S.
    """
    flat = pixels.flatten(2)
    offset = (mean - deviation) @ flat.mean(-1, keepdim=True)  # (N, C, 1)
    torch.bmm(deviation, flat, out=out.flatten(2))
    return out.add_(offset.view(*offset.shape[:2], *[1] * (out.dim() - 2))).clamp_(0, 1)
