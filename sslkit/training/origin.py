"""The weights that a run starts from: `init=` of its settings, its first lines and its card."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from sslkit.backbones.base import Backbone
from sslkit.composition.method import Method
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.training.config import Config
from sslkit.training.data import Data
from sslkit.zoo.start import start


def started(config: Config, data: Data, module: nn.Module | None) -> Backbone | None:
    """The network that init= names, with its weights; None for a random start. module: of `sslkit.pretrain`.

    Raises UserError as `sslkit.zoo.start` does, if a module object is given too, and for freeze_norm without batch
    normalisation.
    """
    if config.init is None:
        return None
    if module is not None:
        raise UserError(f"init={config.init} names the network: leave out the module object given as backbone")
    frames = getattr(data.train, "frames", None)
    body = start(
        config.init,
        image_size=data.image_size,
        in_chans=data.train.channels,
        frames=frames,
        backbone=config.backbone,
    )
    if config.freeze_norm:
        body.freeze_norm()
        said = "batch normalisation keeps its means and variances (freeze_norm=true)"
        body.recipe.origin = replace(body.recipe.origin, notes=(*body.recipe.origin.notes, said))
    return body


def tensors(body: Backbone) -> dict[str, Tensor]:
    """A copy of a network's tensors, to compare with `check_kept`."""
    return {name: value.clone() for name, value in body.net.state_dict().items()}


def check_kept(method: Method, loaded: dict[str, Tensor]) -> None:
    """Raises UserError, with the tensors, if making the objective has replaced weights that were loaded."""
    now = method.backbone.net.state_dict()
    lost = [name for name, value in loaded.items() if name not in now or not torch.equal(now[name], value)]
    if lost:
        learned = lost == ["pos_embed"] and "position" in members.options(type(method.objective))
        remedy = "set method.objective.position=learned" if learned else "take another objective"
        source = method.backbone.recipe.origin.source
        raise UserError(f"method={method.name} would replace {', '.join(lost[:4])} of init={source}: {remedy}")


def lines(method: Method) -> list[str]:
    """The first lines of a run on its initial weights; none for a random start."""
    origin = method.backbone.recipe.origin
    if origin is None:
        return []
    mean, std = (", ".join(f"{value:.4g}" for value in values) for values in origin.normalize)
    notes = (*origin.notes, f"pixels normalised by their mean {mean} and std {std}")
    return [f"init      {origin.source}, sha256 {origin.sha256}", *(f"          {note}" for note in notes)]


def of_card(method: Method) -> dict[str, Any]:
    """The card's field on the initial weights; none for a random start."""
    origin = method.backbone.recipe.origin
    if origin is None:
        return {}
    return {"init": {"source": origin.source, "sha256": origin.sha256, "notes": list(origin.notes)}}


def digest(method: Method) -> str | None:
    """The sha256 of the initial weights, None for a random start."""
    origin = method.backbone.recipe.origin
    return origin and origin.sha256
