"""Precise batch norm: recompute the running statistics on training batches after training.

Source: Wu and Johnson 2021 (arXiv 2105.07576, section 3). The exponential average of training lags behind the weights
and covers few images.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@torch.no_grad()
def precise_batch_norm(net: nn.Module, forward: Callable[[Any], Any], batches: Iterable[Any]) -> int:
    """Set the running mean and variance of every batch norm in training mode; return the number of batches.

    forward: forward pass of a batch, such as `lambda batch: net(*batch)`. Batches have equal weights; the variance is
    the mean variance within batches plus that of their means. Synchronised layers use the batch of all ranks.
    Raises ValueError if a layer is used twice in a forward pass, since its statistics would be those of the second use.
    """
    layers = [m for m in net.modules() if isinstance(m, _BatchNorm) and m.training and m.track_running_stats]
    if not layers:
        return 0
    before = [layer.momentum for layer in layers]
    sums = [torch.zeros(3, *layer.running_mean.shape, device=layer.running_mean.device).double() for layer in layers]
    used, count = [int(layer.num_batches_tracked) for layer in layers], 0
    try:
        for layer in layers:
            layer.momentum = 1.0  # makes the running statistics those of the last batch
        for count, batch in enumerate(batches, 1):
            forward(batch)
            if any(int(layer.num_batches_tracked) != start + count for layer, start in zip(layers, used, strict=True)):
                raise ValueError("precise batch norm needs layers that are used once in each forward pass")
            for layer, total in zip(layers, sums, strict=True):
                mean = layer.running_mean.double()
                total += torch.stack([mean, mean.square(), layer.running_var.double()])
    finally:
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum
    for layer, (mean, square, var) in zip(layers, sums, strict=True) if count else ():
        layer.running_mean.copy_(mean / count)
        layer.running_var.copy_(var / count + square / count - (mean / count).square())
    return count


def recompute_statistics(net: nn.Module, batches: Iterable[Tensor], kept: Collection[str] = ()) -> None:
    """Set the running means and variances of weights that no step has seen; all else is and stays as it was.

    batches: normalised images (B, C, S, S), B above 1. kept: names of layers whose statistics stay. Layers of other
    kinds, as dropout, are as in evaluation. Raises ValueError as `precise_batch_norm`.
    """
    modes = {name: (layer, layer.training) for name, layer in net.named_modules()}
    net.eval()
    try:
        for name, (layer, _) in modes.items():
            layer.training = isinstance(layer, _BatchNorm) and name not in kept
        precise_batch_norm(net, net, batches)
    finally:
        for layer, mode in modes.values():
            layer.training = mode
