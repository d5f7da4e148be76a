"""LoRA: low-rank updates of frozen linear layers and 1 x 1 convolutions (Hu et al. 2022, arXiv 2106.09685).

A layer keeps the keys `weight` and `bias`, and has `lora_A` (r, in) and `lora_B` (out, r), zeros at first, beside them.
Whoever reads its `weight`, a fused attention too, gets W + alpha / r * B A. So nothing passes the update by, and the
network is merged in every pass: what is evaluated has the very weights of `merge`. A teacher averages A and B.
"""

import math
from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

UPDATES = ("lora_A", "lora_B")


class LowRank(nn.Module):
    """What a layer has of LoRA; `scale` is alpha / r."""

    scale: float

    @property
    def weight(self) -> Tensor:
        """The layer's weight with its update, of the weight's shape."""
        base = self._parameters["weight"]
        return base + (self.scale * (self.lora_B @ self.lora_A)).view_as(base)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, lora_rank={len(self.lora_A)}"


class LoRALinear(LowRank, nn.Linear):
    """A linear layer with an update of low rank."""


class LoRAConv2d(LowRank, nn.Conv2d):
    """A convolution of one pixel with an update of low rank."""


def fits(layer: nn.Module, rank: int) -> bool:
    """Return whether a layer can have an update: linear or 1 x 1 without groups, inputs and outputs at least `rank`.

    Of no subclass, which may compute otherwise, and of none that has an update.
    """
    is_point = type(layer) is nn.Conv2d and layer.kernel_size == (1, 1) and layer.groups == 1
    return (is_point or type(layer) is nn.Linear) and min(layer.weight.shape[:2]) >= rank


def inject(net: nn.Module, names: Collection[str], rank: int, alpha: float) -> None:
    """Give the layers of these names updates of this rank, and freeze everything else of the network.

    The outputs stay as they are. A is drawn as torch draws a linear layer's weights, from its generator.
    """
    net.requires_grad_(False)
    for name in names:
        parent, _, child = name.rpartition(".")
        setattr(net.get_submodule(parent), child, _with_update(net.get_submodule(name), rank, alpha))


def _with_update(layer: nn.Linear | nn.Conv2d, rank: int, alpha: float) -> LowRank:
    """A layer with the same tensors and an update."""
    kind = LoRALinear if isinstance(layer, nn.Linear) else LoRAConv2d
    made = kind.__new__(kind)
    made.__dict__ = {**layer.__dict__, "_parameters": dict(layer._parameters), "scale": alpha / rank}
    weight = layer.weight
    made.lora_A = nn.Parameter(weight.new_empty(rank, weight.shape[1]))
    made.lora_B = nn.Parameter(weight.new_zeros(len(weight), rank))
    nn.init.kaiming_uniform_(made.lora_A, a=math.sqrt(5))
    return made


@torch.no_grad()
def merge(net: nn.Module) -> dict[str, Tensor]:
    """The state dict of the network without LoRA: its weights plus their updates."""
    state = {name: value for name, value in net.state_dict().items() if not name.endswith(UPDATES)}
    for name, layer in net.named_modules():
        if isinstance(layer, LowRank):
            state[f"{name}.weight"] = layer.weight
    return state


@torch.no_grad()
def load_merged(net: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load the state dict of the network without LoRA, strictly, and set the updates to zero."""
    updates = {name: value for name, value in net.state_dict().items() if name.endswith(UPDATES)}
    zero = {name: torch.zeros_like(value) for name, value in updates.items() if name.endswith("lora_B")}
    net.load_state_dict({**state, **updates, **zero})
