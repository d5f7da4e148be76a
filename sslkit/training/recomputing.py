"""`trainer.checkpoint_activations=true`: the network's activations are recomputed in the backward pass.

Chen et al. 2016, arXiv 1604.06174. timm says how each network is divided; the gradients are the same.
"""

from contextlib import ExitStack

import pytorch_lightning as pl
from torch import Tensor

from sslkit.backbones.base import Backbone
from sslkit.errors import UserError
from sslkit.layers import norm_statistics


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
    """Keeps the running statistics of batch norms from a second update by the recomputed forward pass."""

    def __init__(self) -> None:
        self.kept = ExitStack()

    def on_before_backward(self, trainer: pl.Trainer, module: pl.LightningModule, loss: Tensor) -> None:
        self.kept.enter_context(norm_statistics.kept(module))

    def on_after_backward(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.kept.close()
