"""Features of a layer, `MODEL@layer2`, or of a ViT by another pooling: `MODEL@class`, `@mean`, `@class+mean`."""

import os
import re

import torch
from torch import Tensor, nn

from sslkit.backbones.base import Backbone, Recipe
from sslkit.errors import UserError, format_value

POOLINGS = ("class", "mean", "class+mean")
LAYER = re.compile(r"layer(\d+)")


def split_pooling(text: str) -> tuple[str, str]:
    """The word of a model and its pooling, "" for its own: "runs/zoo/A@mean" -> ("runs/zoo/A", "mean").

    A file or folder whose own name has an @ is that: "runs/zoo/A@home". Raises UserError for an unknown pooling.
    """
    name, at, pooling = text.rpartition("@")
    if not at or not name or "/" in pooling or _is_there(text):
        return text, ""
    if pooling not in POOLINGS and not LAYER.fullmatch(pooling):
        choices = f"{', '.join(POOLINGS)}, layer1, layer2, ..."
        raise UserError(f"model {text}: the pooling after @ must be one of {choices}; got {format_value(pooling)}")
    return name, pooling


def _is_there(text: str) -> bool:
    """Return whether a word is a path, or has one behind its colons, as `timm:NAME:FILE`."""
    words = text.split(":")
    return any(os.path.exists(os.path.expanduser(":".join(words[first:]))) for first in range(len(words)))


class TokenPooling(nn.Module):
    """A ViT's class token, the mean of its patches, or both side by side: (B, C, H, W) -> (B, width).

    Each is normalised as the network normalises what it pools itself.
    """

    def __init__(self, net: nn.Module, pooling: str) -> None:
        super().__init__()
        self.net = net
        self.pooling = pooling

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.net.forward_features(x)
        parts = {"class": tokens[:, 0], "mean": tokens[:, self.net.num_prefix_tokens :].mean(1)}
        return torch.cat([self.net.fc_norm(parts[name]) for name in self.pooling.split("+")], dim=1)


class LayerPooling(nn.Module):
    """The mean over all positions after a layer, with nothing computed behind it: (B, C, H, W) -> (B, width).

    layer: from 1, as timm counts a network's feature levels: the stem and the stages of a convolutional network, the
    blocks of a ViT (its patches, without class token).
    """

    def __init__(self, net: nn.Module, layer: int) -> None:
        super().__init__()
        self.net = net
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        how = {"stop_early": True, "intermediates_only": True, "output_fmt": "NCHW"}
        (features,) = self.net.forward_intermediates(x, indices=[self.layer - 1], **how)
        return features.mean((2, 3))


def layers(own: Backbone) -> tuple[str, ...]:
    """The layers of a network, "layer1" first; none if they cannot be read."""
    readable = hasattr(own.net, "forward_intermediates") and not own.item.axes
    return tuple(f"layer{k}" for k in range(1, len(own.net.feature_info) + 1)) if readable else ()


def pool(own: Backbone, pooling: str, name: str) -> Backbone:
    """A network with features by this pooling, or of this layer. name: of the model, for messages.

    Raises UserError for a network without such layers, without patches, and without a class token if that is asked for.
    """
    match = LAYER.fullmatch(pooling)
    if match:
        if pooling not in layers(own):
            has = f"it has {', '.join(layers(own))}" if layers(own) else "its layers cannot be read"
            raise UserError(f"model {name}: {own.recipe.name} has no {pooling}: {has}")
        net: nn.Module = LayerPooling(own.net, int(match[1]))
        return _wrap(net, own)
    if not own.is_vit:
        raise UserError(f"model {name}: {own.recipe.name} has no tokens: leave out @{pooling}")
    if "class" in pooling and own.net.cls_token is None:
        raise UserError(f"model {name}: {own.recipe.name} has no class token: take @mean")
    return _wrap(TokenPooling(own.net, pooling), own)


def _wrap(net: nn.Module, own: Backbone) -> Backbone:
    return Backbone(net, Recipe(own.recipe.name), image_size=own.image_size, in_chans=own.in_chans).eval()
