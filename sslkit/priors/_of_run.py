"""Priors that are made from the network in training: its start, what it was after an epoch, and a random one."""

import copy

import torch
from torch import nn

from sslkit.backbones.base import Backbone
from sslkit.errors import UserError
from sslkit.priors.base import NetworkPrior, Prior
from sslkit.runtime.context import Runtime


class RunPrior(NetworkPrior):
    """A frozen network of the run; it has none until a method calls `bind`, and is not saved with it.

    It computes in the precision of the run, so that equal weights give equal features. prior_size: side in pixels of
    what it sees, for which a ViT's positions are resampled; None is that of the views.
    """

    def __init__(self, name: str, *, size: int | None = None) -> None:
        Prior.__init__(self, name)
        self.size = size

    @classmethod
    def from_name(cls, name: str, *, size: int | None, precision: str) -> "RunPrior":
        if precision != Runtime.precision:
            raise UserError(f"prior {name} computes in the run's own precision: leave prior_precision out")
        return cls(name, size=size)

    def bind(self, backbone: Backbone, normalize: tuple[tuple[float, ...], tuple[float, ...]], seed: int) -> None:
        """Make the network from the one in training, before its first step. normalize: mean and std of the run.

        Raises UserError for a network of clips, for another normalisation than that of the weights that the run starts
        from, and for a network that does not take images of `prior_size`.
        """
        backbone.check_images(f"prior {self.name} takes images")
        origin = backbone.recipe.origin
        if origin is not None and tuple(map(tuple, origin.normalize)) != tuple(map(tuple, normalize)):
            raise UserError(
                f"prior {self.name}: the weights of init={origin.source} were trained with mean and std "
                f"{origin.normalize}, and this method has {normalize}: give it normalize={origin.normalize}"
            )
        size = self.size or backbone.image_size
        network = _at_size(self.make(backbone, seed), size, backbone, self.name)
        mean, std = normalize
        config = {"size": size, "mean": mean, "std": std, "channels": backbone.in_chans}
        super().__init__(self.name, network, config, precision=None)
        self.is_ready_made = False

    def make(self, backbone: Backbone, seed: int) -> nn.Module:
        """A copy of the network as it is now."""
        return copy.deepcopy(backbone.net)


def _at_size(net: nn.Module, size: int, backbone: Backbone, name: str) -> nn.Module:
    """The network for images of this size, and checked on one if the size is not the run's."""
    if size == backbone.image_size:
        return net
    try:
        if hasattr(net, "set_input_size"):
            net.set_input_size(img_size=size)
        with torch.no_grad():
            net.eval()(torch.zeros(1, *backbone.input_shape(size)))
    except Exception as error:  # each network raises its own
        raise UserError(f"prior {name}: {backbone.recipe.name} takes no images of prior_size={size}") from error
    return net
