"""Features of a layer, `MODEL@layer2`; of a ViT by its tokens, `MODEL@class`, `@mean`, `@class+mean`.

`MODEL@last4.both` are those of its last blocks side by side, as DINOv2's linear evaluation takes them.
"""

import os
import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sslkit.backbones.base import Backbone, Recipe
from sslkit.errors import UserError, format_value

POOLINGS = ("class", "mean", "class+mean")
CLASS, MEAN, BOTH = "class", "mean", "both"
LAST_POOLINGS = (CLASS, MEAN, BOTH)
UNREADABLE = "its layers cannot be read"
OWN = "own"  # the features that the network pools itself
_RAW = "raw"  # the mean over the positions, not normalised
_LAYER = re.compile(r"layer(\d+)")
_LAST = re.compile(rf"last(\d+)\.({'|'.join(LAST_POOLINGS)})")
Part = tuple[int, str]  # a layer, from 1, and CLASS, MEAN or _RAW of it


def split_pooling(text: str) -> tuple[str, str]:
    """The word of a model and its pooling, "" for its own: "runs/zoo/A@mean" -> ("runs/zoo/A", "mean").

    A file or folder whose own name has an @ is that: "runs/zoo/A@home". Raises UserError for an unknown pooling.
    """
    name, at, pooling = text.rpartition("@")
    if not at or not name or "/" in pooling or _is_there(text):
        return text, ""
    if pooling not in POOLINGS and not _LAYER.fullmatch(pooling) and not _LAST.fullmatch(pooling):
        choices = f"{', '.join(POOLINGS)}, layer1, layer2, ..., last1.{CLASS}, last4.{BOTH}, ..."
        raise UserError(f"model {text}: the pooling after @ must be one of {choices}; got {format_value(pooling)}")
    return name, pooling


def _is_there(text: str) -> bool:
    """Return whether a word is a path, or has one behind its colons, as `timm:NAME:FILE`."""
    words = text.split(":")
    return any(os.path.exists(os.path.expanduser(":".join(words[first:]))) for first in range(len(words)))


class LevelPooling(nn.Module):
    """Pooled features of layers, side by side, in one pass: (B, C, H, W) -> (B, width).

    parts: a layer each, from 1, as timm counts a network's feature levels: the stem and the stages of a convolutional
    network, the blocks of a ViT. "raw" is the mean over all positions (of a ViT its patches). "class" and "mean" are a
    ViT's class token and the mean of its patches, normalised as the network normalises what it pools itself. "own" of
    any layer are the features that the network pools itself, in a pass of their own.
    """

    def __init__(self, net: nn.Module, parts: Sequence[Part], is_vit: bool) -> None:
        super().__init__()
        self.net = net
        self.parts = tuple(parts)
        self.is_vit = is_vit

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.pool_parts(x), 1)

    def pool_parts(self, x: Tensor) -> list[Tensor]:
        """Return the features of each part."""
        outputs = self._outputs(x, sorted({layer for layer, kind in self.parts if kind != OWN}))
        return [self.net(x) if kind == OWN else self._pool(outputs[layer], kind) for layer, kind in self.parts]

    def _outputs(self, x: Tensor, layers: Sequence[int]) -> dict[int, tuple[Tensor, Tensor | None]]:
        """Return the positions of each layer, of a ViT (B, N, D), and its other tokens; nothing is computed behind."""
        if not layers:
            return {}
        how = {"stop_early": True, "intermediates_only": True, "output_fmt": "NLC" if self.is_vit else "NCHW"}
        has_prefix = self.is_vit and self.net.num_prefix_tokens > 0
        if has_prefix:
            how["return_prefix_tokens"] = True
        outputs = self.net.forward_intermediates(x, indices=[layer - 1 for layer in layers], **how)
        return dict(zip(layers, outputs if has_prefix else [(output, None) for output in outputs], strict=True))

    def _pool(self, output: tuple[Tensor, Tensor | None], kind: str) -> Tensor:
        positions, prefix = output
        if kind == _RAW:
            return positions.mean(1 if self.is_vit else (2, 3))
        token = self.net.norm(prefix[:, 0]) if kind == CLASS else self.net.norm(positions).mean(1)
        return self.net.fc_norm(token)


def layers(own: Backbone) -> tuple[str, ...]:
    """The layers of a network, "layer1" first; none if they cannot be read."""
    readable = hasattr(own.net, "forward_intermediates") and not own.item.axes
    return tuple(f"layer{k}" for k in range(1, len(own.net.feature_info) + 1)) if readable else ()


def readable_words(own: Backbone) -> tuple[str, ...]:
    """The layers and poolings of a network, beside its own features."""
    tokens = [word for word in POOLINGS if own.is_vit and (own.net.cls_token is not None or CLASS not in word)]
    return (*layers(own), *tokens)


def parts_of(own: Backbone, pooling: str, name: str) -> tuple[Part, ...]:
    """What a pooling is made of. name: of the model, for messages.

    Raises UserError for a network without such layers, without patches, and without a class token if that is asked for.
    """
    has = layers(own)
    if pooling == OWN:
        return ((0, OWN),)
    if _LAYER.fullmatch(pooling) and pooling not in has:
        these = f"it has {', '.join(has)}" if has else UNREADABLE
        raise UserError(f"model {name}: {own.recipe.name} has no {pooling}: {these}")
    if match := _LAYER.fullmatch(pooling):
        return ((int(match[1]), _RAW),)
    if match := _LAST.fullmatch(pooling):
        return _last_parts(own, int(match[1]), match[2], name)
    _check_tokens(own, pooling, name)
    return tuple((len(has), kind) for kind in pooling.split("+"))


def _last_parts(own: Backbone, count: int, kind: str, name: str) -> tuple[Part, ...]:
    """The last `count` layers, the last one first; BOTH has the mean of the last alone, as DINOv2's."""
    depth = len(layers(own))
    if not 1 <= count <= depth:
        these = f"has {depth} layers, so there are no last {count}" if depth else f"has no blocks: {UNREADABLE}"
        raise UserError(f"model {name}: {own.recipe.name} {these}")
    last = range(depth, depth - count, -1)
    if kind == MEAN and not own.is_vit:
        return tuple((layer, _RAW) for layer in last)
    _check_tokens(own, CLASS if kind == BOTH else kind, name)
    tokens = tuple((layer, MEAN if kind == MEAN else CLASS) for layer in last)
    return (*tokens, (depth, MEAN)) if kind == BOTH else tokens


def _check_tokens(own: Backbone, pooling: str, name: str) -> None:
    if not own.is_vit:
        raise UserError(f"model {name}: {own.recipe.name} has no tokens: leave out @{pooling}")
    if CLASS in pooling and own.net.cls_token is None:
        raise UserError(f"model {name}: {own.recipe.name} has no class token: take @{MEAN}")


def pool(own: Backbone, poolings: Sequence[str], name: str) -> Backbone:
    """A network whose features are those of these poolings, each part once. Raises UserError as `parts_of`."""
    parts = dict.fromkeys(key for pooling in poolings for key in parts_of(own, pooling, name))
    net = LevelPooling(own.net, tuple(parts), own.is_vit)
    return Backbone(net, Recipe(own.recipe.name), image_size=own.image_size, in_chans=own.in_chans).eval()
