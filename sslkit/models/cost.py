"""The cost of a network in multiply-adds, by which a cheaper one is told among those that may be as good."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sslkit.zoo.exporting.onnx import OnnxNetwork

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@torch.no_grad()
def count_multiply_adds(net: nn.Module, shape: Sequence[int]) -> float:
    """Return the multiply-adds of convolutions and linear layers for one item; products within attention are not in it.

    net: in eval mode; nan for an .onnx file, whose layers are not seen. shape: of an image (C, S, S), or a clip
        (C, T, S, S).
    """
    if isinstance(net, OnnxNetwork):
        return math.nan
    counts = [0]

    def count(layer: nn.Module, _: Any, out: Tensor) -> None:
        counts[0] += out.numel() * layer.weight[0].numel()

    hooks = [layer.register_forward_hook(count) for layer in net.modules() if isinstance(layer, LAYERS)]
    item = torch.zeros(1, *shape)
    try:
        net(item.to(next(net.parameters(), item).device))
    finally:
        for hook in hooks:
            hook.remove()
    return counts[0]
