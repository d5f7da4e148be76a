"""untrained: the same network with random weights, or those that it began from, to compare a model with it."""

from dataclasses import replace

from torch import nn

from sslkit import backbones
from sslkit.backbones import words
from sslkit.errors import UserError
from sslkit.models.digest import weights_digest
from sslkit.models.model import Model
from sslkit.models.pooling import LevelPooling
from sslkit.runtime.device import use_seed
from sslkit.zoo.start import start


def with_random_weights(model: Model, seed: int) -> Model | None:
    """Return the model's network with random weights and the same preparation of images; None if it cannot be built.

    Zoo entries without code of their own and timm's networks can be built; a given module and another pooling cannot.
    """
    with use_seed(seed):
        net = _network(model)
    if net is None:
        return None
    trained = model.backbone
    sizes = {"image_size": trained.image_size, "in_chans": trained.in_chans, "item": trained.item}
    backbone = backbones.Backbone(net, trained.recipe, **sizes).eval()
    named = {"name": f"untrained {model.name}", "digest": weights_digest(net)}
    return replace(model, backbone=backbone, entry=None, card={}, source_head=None, classifier=None, **named)


def with_first_weights(model: Model) -> Model | None:
    """Return the network of an entry with the weights that its run was given (init=), its name with `words.START`.

    None for a run from random weights, for weights that have gone or changed, and for those that timm would download.
    """
    source = model.card.get("init", {}).get("source")
    if source is None or model.entry is None:
        return None
    sizes = {"image_size": model.image_size, "in_chans": model.in_chans, "frames": model.item.frames}
    try:
        asked = words.parse(source, f"init={source}")
        if asked.kind == "timm" and not asked.file:
            return None
        backbone = start(source, **sizes).eval()
    except UserError:
        return None
    if backbone.recipe.origin.sha256 != model.card["init"].get("sha256"):
        return None
    named = {"name": f"{words.START}{source}", "digest": weights_digest(backbone.net)}
    return replace(model, backbone=backbone, entry=None, card={}, source_head=None, classifier=None, **named)


def _network(model: Model) -> nn.Module | None:
    import timm

    if model.entry is not None:
        try:
            return model.entry.random_network()
        except UserError:
            return None
    backbone = model.backbone
    if isinstance(backbone.net, LevelPooling):
        return None
    if backbone.recipe.name in backbones.NARROW or words.is_untrained(model.name):
        try:
            return backbones.build(backbone.recipe.name, image_size=backbone.image_size, in_chans=backbone.in_chans).net
        except UserError:
            return None
    return timm.create_model(backbone.recipe.name, num_classes=0) if timm.is_model(backbone.recipe.name) else None
