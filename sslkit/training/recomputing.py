"""`trainer.checkpoint_activations=true`: the network's activations are recomputed in the backward pass.

Chen et al. 2016, arXiv 1604.06174. timm says how each network is divided; the gradients are the same.
"""

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
