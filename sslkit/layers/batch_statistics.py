"""The running means and variances of batch normalisation, made anew for weights that no training step has seen."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@torch.no_grad()
def recompute_statistics(net: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set all running means and variances to their mean over batches; everything else of the network stays.

    batches: normalised images (B, C, S, S), B above 1 and best the same in each. Other layers, as dropout, are as in
    evaluation (Izmailov et al. 2018, arXiv 1803.05407, section 3.2).
    """
    modes = {layer: layer.training for layer in net.modules()}
    norms = [layer for layer in modes if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    momenta = [layer.momentum for layer in norms]
    net.eval()
    for layer in norms:
        layer.reset_running_stats()
        layer.momentum = None  # the mean over all batches
        layer.train()
    for images in batches if norms else ():
        net(images)
    for layer, momentum in zip(norms, momenta, strict=True):
        layer.momentum = momentum
    for layer, mode in modes.items():
        layer.training = mode
