"""Features of a ViT by another pooling than its own: `MODEL@class`, `MODEL@mean`, `MODEL@class+mean`."""

import torch
from torch import Tensor, nn

from sslkit.backbones.base import Backbone, Recipe
from sslkit.errors import UserError

POOLINGS = ("class", "mean", "class+mean")


def parted(text: str) -> tuple[str, str]:
    """The word of a model and its pooling, "" for its own: "runs/zoo/A@mean" -> ("runs/zoo/A", "mean").

    Raises UserError for an unknown pooling.
    """
    name, at, pooling = text.rpartition("@")
    if not at or not name or "/" in pooling:
        return text, ""
    if pooling not in POOLINGS:
        raise UserError(f"model {text}: the pooling after @ must be one of {', '.join(POOLINGS)}, got {pooling!r}")
    return name, pooling


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


def pooled(own: Backbone, pooling: str, name: str) -> Backbone:
    """A network with features by this pooling. name: of the model, for messages.

    Raises UserError for a network without patches, and for one without a class token if that is asked for.
    """
    if not own.is_vit:
        raise UserError(f"model {name}: {own.recipe.name} has no tokens: leave out @{pooling}")
    if "class" in pooling and own.net.cls_token is None:
        raise UserError(f"model {name}: {own.recipe.name} has no class token: take @mean")
    net = TokenPooling(own.net, pooling)
    return Backbone(net, Recipe(own.recipe.name), image_size=own.image_size, in_chans=own.in_chans).eval()
