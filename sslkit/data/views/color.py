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


def chain(
    brightness: Tensor, contrast: Tensor, saturation: Tensor, turn: Tensor, gray: Tensor, order: Tensor, channels: int
) -> Tensor:
    """The matrices P and S, (2, N, C, C), of the four changes in random order, then of a change to gray.

    brightness: x -> f x. contrast: x -> f x + (1 - f) (mean gray of the image or clip). saturation: x -> f x +
    (1 - f) gray(x), the luma of three channels. All are factors (N,). turn: (N,) of the colours about the gray axis
    R = G = B, in turns; 1/3 is red to green. The mean of the channels is kept. Equal to HSV's shift at thirds of a
    turn, close to it between them. gray: (N,) 1 for a gray view, else 0. order: (N, 4) numbers; the changes come in
    their order. Saturation, turn and gray need three channels, and are left out of others, whose gray is their mean.

    With G = 1 l^T the projection to gray and H the turn, H G = G = G H G. So the factors before the turn multiply to
    one, a, and those after it to one, z, and the chain is a z H + a (1 - z) G H + (1 - a) G.
    """
    ones = torch.ones_like(contrast)
    if channels != 3:
        luma, turned, first = torch.full((channels,), 1 / channels), torch.eye(channels), torch.stack([ones, contrast])
        last = torch.ones_like(first)
    else:
        luma, turned = torch.tensor(LUMA), _hue_rotation(turn)
        factors = torch.stack([torch.stack([saturation, ones]), torch.stack([saturation, contrast])])  # of P, of S
        early = order[:, 3] > order[:, [2, 1]].T  # before the turn
        first, last = torch.where(early, factors, 1).prod(1), torch.where(early, 1, factors).prod(1) * (1 - gray)
    scale = brightness * torch.stack([contrast, ones])
    rows = (first * (1 - last))[..., None] * (luma @ turned) + (1 - first)[..., None] * luma  # (2, N, C)
    matrix = (first * last)[..., None, None] * turned + rows[..., None, :]
    return scale[..., None, None] * matrix


def _hue_rotation(turn: Tensor) -> Tensor:
    """(N, 3, 3) rotations about the gray axis."""
    angle = 2 * math.pi * turn[:, None, None]
    across = torch.tensor([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / math.sqrt(3)  # v -> axis x v
    return torch.eye(3) + angle.sin() * across + (1 - angle.cos()) * (across @ across)


def apply(pixels: Tensor, deviation: Tensor, mean: Tensor, out: Tensor) -> Tensor:
    """P (x - m) + S m with m the mean colour of each image or clip, written to `out` and clamped to [0, 1].

    pixels, out: (N, C, H, W), or (N, C, T, H, W): a clip has one m, since with one per frame moving parts would change
    the colour of still ones. deviation: (N, C, C), P. mean: (N, C, C), S.
    """
    flat = pixels.flatten(2)
    offset = (mean - deviation) @ flat.mean(-1, keepdim=True)  # (N, C, 1)
    torch.bmm(deviation, flat, out=out.flatten(2))
    return out.add_(offset.view(*offset.shape[:2], *[1] * (out.dim() - 2))).clamp_(0, 1)
