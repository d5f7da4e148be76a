"""Let a part of a network learn, as `tune=` names it, and the rest stay: train_part(backbone, tune.parse("last:2"))."""

import re

from torch import nn

from sslkit.backbones.base import CONVOLUTIONS, Backbone
from sslkit.backbones.tune import ALL, LAST, LORA, NORMS, Tune
from sslkit.errors import UserError
from sslkit.layers import lora

_KIND = re.compile(r"[^.\d][^.]*(\.\d+)*$")  # the last word of a layer's name
_NUMBERED = re.compile(r"(^|\.)\d+(\.|$)")  # the name of a parameter in a block


def train_part(body: Backbone, what: Tune) -> str:
    """Let only this part of a backbone learn; returns it in words.

    Raises UserError, with what would work, for blocks that the network does not have, and for norms likewise.
    """
    learned, told = _inject(body, what) if what.kind == LORA else _choose(body, what)
    for name, p in body.net.named_parameters():
        p.requires_grad_(p.requires_grad and name in learned)
    norms = body.batch_norms()
    if what.statistics and not norms:
        raise UserError(f"tune={what.kind}+statistics: {body.recipe.name} has no batch normalisation: leave it out")
    body.keep_norms(
        name
        for name, layer in norms.items()
        if not (what.statistics and any(p.requires_grad for p in layer.parameters(recurse=False)))
    )
    which = "its" if len(body.kept_norms) == len(norms) else "elsewhere its"
    return f"{told}; batch norm keeps {which} means and variances" if body.kept_norms else told


def layers_of(net: nn.Module) -> dict[str, int]:
    """The number of the layer of each parameter of a network of timm, from 0, the stem; empty for other networks."""
    from timm.models import group_parameters

    matcher = getattr(net, "group_matcher", None)
    return group_parameters(net, matcher(coarse=False), reverse=True) if matcher else {}


def blocks_of(body: Backbone) -> list[int]:
    """The layers of a network that are blocks, from the first to the last: neither the stem nor a head's norm."""
    return sorted({layer for name, layer in layers_of(body.net).items() if layer and _NUMBERED.search(name)})


def _last(body: Backbone, what: Tune) -> tuple[set[str], int]:
    """Names of the parameters of the last blocks and after them, and the number of all blocks."""
    layers, blocks = layers_of(body.net), blocks_of(body)
    if what.blocks > len(blocks):
        works = f"give at most {len(blocks)} blocks" if blocks else f"it does not name them: give tune={NORMS}"
        raise UserError(
            f"tune={what.kind} of {what.blocks} blocks: {body.recipe.name} has {len(blocks)}: {works}, or tune={ALL}"
        )
    return {name for name, layer in layers.items() if layer >= blocks[-what.blocks]}, len(blocks)


def _inject(body: Backbone, what: Tune) -> tuple[set[str], str]:
    """Put LoRA into the layers that can have it; names of its parameters, and where it is, in words."""
    layers = {name: layer for name, layer in body.net.named_modules() if isinstance(layer, (nn.Linear, *CONVOLUTIONS))}
    among = _last(body, what)[0] if what.blocks else dict(body.net.named_parameters())
    names = [name for name, layer in layers.items() if f"{name}.weight" in among and lora.fits(layer, what.rank)]
    if not names:
        raise UserError(
            f"tune=lora: none of {len(layers)} layers of {body.recipe.name} is linear or a 1 x 1 convolution with at "
            f"least rank={what.rank} inputs and outputs: give a smaller rank, or tune={NORMS}"
        )
    lora.inject(body.net, names, what.rank, what.alpha)
    learned = {name for name, _ in body.net.named_parameters() if name.endswith(lora.UPDATES)}
    kinds = sorted({_KIND.search(name)[0] for name in names})
    return learned, f"LoRA rank {what.rank} in {len(names)} of {len(layers)} layers ({', '.join(kinds)})"


def _choose(body: Backbone, what: Tune) -> tuple[set[str], str]:
    """Names of the parameters that learn, and what they are in words."""
    if what.kind == LAST:
        learned, count = _last(body, what)
        return learned, f"the last {what.blocks} of {count} blocks"
    if what.kind == NORMS:
        layers = {name: layer for name, layer in body.net.named_modules() if "norm" in type(layer).__name__.lower()}
        weights = {name for name, _ in body.net.named_parameters()}
        learned = {f"{name}.{key}" for name, layer in layers.items() for key in layer._parameters} & weights
        if not learned:
            raise UserError(f"tune=norms: {body.recipe.name} has no normalisation layers: tune={ALL} trains it")
        return learned, f"{len(learned)} weights and biases of norms"
    return {name for name, _ in body.net.named_parameters()}, "all of the network"
