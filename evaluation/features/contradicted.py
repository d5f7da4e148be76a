"""Weights of others, not of a zoo entry, whose batch normalisation contradicts the images that they are judged on."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from sslkit.backbones import norm_statistics
from sslkit.data.loader import evenly
from sslkit.models.model import Model


def contradiction(model: Model, pixels: Callable[[int], Tensor]) -> str:
    """Return what the weights seem to expect, see `norm_statistics.contradiction`; "" for entries and for clips.

    pixels: reads at most so many images (N, C, S, S) uint8. "" for images that the network cannot take, of which its
    first pass says more.
    """
    if model.card or not norm_statistics.has_statistics(model.net, model.item):
        return ""
    try:
        return norm_statistics.contradiction(model.net, pixels(norm_statistics.IMAGES), model.mean, model.std)
    except (RuntimeError, ValueError, TypeError, AssertionError, LookupError):
        return ""


def warn_of_pictures(model: Model, data: Any) -> None:
    """Warn, as for features, of images that are not made squares, as those of a detection set.

    data: N images, of which `data.pixels[row]` is (3, H, W) uint8. Nothing is said of networks of other channels.
    """

    def pixels(most: int) -> Tensor:
        sides = (model.image_size, model.image_size)
        pictures = (data.pixels[row][None].float() for row in evenly(len(data), most))
        return (
            torch.cat([interpolate(picture, sides, mode="bilinear", antialias=True) for picture in pictures])
            .round()
            .byte()
        )

    if model.in_chans == 3:
        warn(model, contradiction(model, pixels))


def warn(model: Model, said: str) -> None:
    """Warn of a contradiction, if there is one."""
    norm_statistics.warn(model.name, said)
