"""`trainer.checkpoint_activations=true`: the network's activations are recomputed in the backward pass.

Chen et al. 2016, arXiv 1604.06174. timm says how each network is divided; the gradients are the same.
"""

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from sslkit.backbones.base import Backbone
from sslkit.errors import UserError


def recompute(body: Backbone) -> None:
    """Let a network recompute its activations. Raises UserError for one that cannot."""
    try:
        body.net.set_grad_checkpointing(True)
    except (AttributeError, AssertionError, NotImplementedError, TypeError) as error:
        raise UserError(
            f"trainer.checkpoint_activations=true: backbone {body.recipe.name} cannot recompute its activations; "
            "take a timm network that can, such as a ResNet or a ViT, or leave it out"
        ) from error


class Recomputed(pl.Callback):
    """Keeps the running statistics of batch norms from a second update by the recomputed forward pass.

    Their momentum is 0 for the time of the backward pass, and other tensors count its batches. (Without statistics,
    `track_running_stats=False`, the recomputed pass would save other tensors than the first.)
    """

    def __init__(self) -> None:
        self.kept: list[tuple[_BatchNorm, float | None, Tensor]] = []

    def on_before_backward(self, trainer: pl.Trainer, module: pl.LightningModule, loss: Tensor) -> None:
        norms = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.num_batches_tracked is not None]
        self.kept = [(norm, norm.momentum, norm.num_batches_tracked) for norm in norms]
        for norm, _, count in self.kept:
            norm.momentum, norm.num_batches_tracked = 0.0, torch.zeros_like(count)

    def on_after_backward(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        for norm, momentum, count in self.kept:
            norm.momentum, norm.num_batches_tracked = momentum, count
