"""What of given weights is trained: the word `tune=`, the same for pretraining and for detection.

    train_part(backbone, parse("last:2"))

| word | what learns |
|---|---|
| all | every weight |
| last:k | the last k blocks and what comes after them |
| norms | weights and biases of normalisation layers |

The means and variances of batch normalisation stay those of the given weights; WORD+statistics lets them move where the
norm learns. Moving them to new images cost efficientnet_lite0 more than training gained (benchmarks/LOG.md).
"""

import re
from dataclasses import dataclass

from torch import nn

from sslkit.backbones.base import Backbone
from sslkit.errors import UserError

ALL, NORMS, LAST = "all", "norms", "last"
FORMS = "all, norms, last:2; each with +statistics to move those of batch normalisation too"
_NUMBERED = re.compile(r"(^|\.)\d+(\.|$)")  # the name of a parameter in a block


@dataclass(frozen=True)
class Tune:
    """A word, parsed. blocks: how many of the last ones learn; None: any. statistics: of batch norm move, too."""

    kind: str
    blocks: int | None = None
    statistics: bool = False


def parse(word: str) -> Tune:
    """The meaning of `tune=word`. Raises UserError for another word."""
    text, plus, more = word.replace(" ", "").partition("+")
    kind, _, count = text.partition(":")
    if plus and more != "statistics":
        raise UserError(f"tune={word}: only +statistics can be added; give {FORMS}")
    if text in (ALL, NORMS):
        return Tune(text, statistics=bool(plus))
    if kind == LAST and count.isdecimal() and int(count) > 0:
        return Tune(LAST, blocks=int(count), statistics=bool(plus))
    raise UserError(f"tune={word} is not known: give {FORMS}")


def train_part(body: Backbone, what: Tune) -> str:
    """Let only this part of a backbone learn; returns it in words.

    Raises UserError, with what would work, for blocks that the network does not have, and for norms likewise.
    """
    weights = dict(body.net.named_parameters())
    learned, told = _choose(body, what)
    for name, p in weights.items():
        p.requires_grad_(p.requires_grad and name in learned)
    norms = body.batch_norms()
    if what.statistics and not norms:
        raise UserError(f"tune={what.kind}+statistics: {body.recipe.name} has no batch normalisation: leave it out")
    body.keep_norms(
        name
        for name, layer in norms.items()
        if not (what.statistics and any(p.requires_grad for p in layer.parameters(recurse=False)))
    )
    part = "its" if len(body.kept_norms) == len(norms) else "elsewhere its"
    return f"{told}; batch norm keeps {part} means and variances" if body.kept_norms else told


def layers_of(net: nn.Module) -> dict[str, int]:
    """The number of the layer of each parameter of a network of timm, from 0, the stem; empty for other networks."""
    from timm.models import group_parameters

    matcher = getattr(net, "group_matcher", None)
    return group_parameters(net, matcher(coarse=False), reverse=True) if matcher else {}


def blocks_of(body: Backbone) -> list[int]:
    """The layers of a network that are blocks, from the first to the last: neither the stem nor a head's norm."""
    return sorted({layer for name, layer in layers_of(body.net).items() if layer and _NUMBERED.search(name)})


def _choose(body: Backbone, what: Tune) -> tuple[set[str], str]:
    """Names of the parameters that learn, and what they are in words."""
    if what.kind == LAST:
        layers, blocks = layers_of(body.net), blocks_of(body)
        if what.blocks > len(blocks):
            works = f"give at most last:{len(blocks)}" if blocks else "it does not name them: give tune=norms"
            raise UserError(
                f"tune=last:{what.blocks}: {body.recipe.name} has {len(blocks)} blocks: {works}, or tune={ALL}"
            )
        learned = {name for name, layer in layers.items() if layer >= blocks[-what.blocks]}
        return learned, f"the last {what.blocks} of {len(blocks)} blocks"
    if what.kind == NORMS:
        layers = {name: layer for name, layer in body.net.named_modules() if "norm" in type(layer).__name__.lower()}
        weights = {name for name, _ in body.net.named_parameters()}
        learned = {f"{name}.{key}" for name, layer in layers.items() for key in layer._parameters} & weights
        if not learned:
            raise UserError(f"tune=norms: {body.recipe.name} has no normalisation layers: tune={ALL} trains it")
        return learned, f"{len(learned)} weights and biases of norms"
    return {name for name, _ in body.net.named_parameters()}, "all of the network"
