"""A network of random weights of the same form as the one in training: the control of every other prior."""

import torch
from torch import nn

from sslkit.backbones import network_lines
from sslkit.backbones.base import Backbone
from sslkit.errors import UserError
from sslkit.priors._of_run import RunPrior
from sslkit.runtime.device import seed_of, use_seed


class RandomPrior(RunPrior):
    """Its weights depend on the seed of the run, and are no run's first ones."""

    specified = False

    def make(self, backbone: Backbone, seed: int) -> nn.Module:
        """The network of the recipe, with new weights."""
        network = network_lines.parse(backbone.recipe.lines)
        if network is None:
            raise UserError(
                f"prior {self.name} makes timm's networks, and {backbone.recipe.name} is another: give the control as "
                "a function of images, prior=package.module:function"
            )
        weight = next(backbone.parameters())
        with use_seed(seed_of("prior random", seed) % 2**63, torch.device("cpu")):
            return network.build(f"prior {self.name}").to(weight)
