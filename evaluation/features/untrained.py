"""untrained: the same network with random weights, for metrics that compare a model with it."""

from dataclasses import replace

from torch import nn

from evaluation.features.digest import weights_digest
from evaluation.features.models import LoadedModel
from evaluation.features.pooling import LayerPooling, TokenPooling
from sslkit import backbones
from sslkit.backbones.words import is_untrained
from sslkit.errors import UserError
from sslkit.runtime.device import use_seed


def with_random_weights(model: LoadedModel, seed: int) -> LoadedModel | None:
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
    return replace(model, backbone=backbone, entry=None, card={}, classifier=None, **named)


def _network(model: LoadedModel) -> nn.Module | None:
    import timm

    if model.entry is not None:
        try:
            return model.entry.random_network()
        except UserError:
            return None
    backbone = model.backbone
    if isinstance(backbone.net, (TokenPooling, LayerPooling)):
        return None
    if backbone.recipe.name in backbones.NARROW or is_untrained(model.name):
        try:
            return backbones.build(backbone.recipe.name, image_size=backbone.image_size, in_chans=backbone.in_chans).net
        except UserError:
            return None
    return timm.create_model(backbone.recipe.name, num_classes=0) if timm.is_model(backbone.recipe.name) else None
