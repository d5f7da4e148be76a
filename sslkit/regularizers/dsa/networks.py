"""Frozen networks as priors: open_clip's image encoders and any timm model, downloaded or from a local file."""

from pathlib import Path

import torch
from torch import Tensor, nn

from sslkit.errors import UserError
from sslkit.members import nearest
from sslkit.regularizers.dsa.prior import NetworkPrior

CLIP_MODEL, CLIP_TAG = "ViT-B-32", "laion2b_s34b_b79k"


def build(prior: str, *, size: int | None, precision: str) -> NetworkPrior:
    """`clip[:MODEL[:PRETRAINED]]` or `timm:NAME[:FILE]`. Leaves torch's random state as it was."""
    kind, name, weights = (*prior.split(":", 2), "", "")[:3]
    with torch.random.fork_rng(devices=[]):
        network, config = (_clip if kind == "clip" else _timm)(prior, name, weights)
    return NetworkPrior(
        prior,
        network,
        size=size or config["size"],
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        interpolation=config["interpolation"],
        precision=precision,
    )


class _ImageEncoder(nn.Module):
    """The image half of a CLIP model."""

    def __init__(self, visual: nn.Module) -> None:
        super().__init__()
        self.visual = visual

    def forward(self, x: Tensor) -> Tensor:
        return self.visual(x)


def _clip(prior: str, name: str, weights: str) -> tuple[nn.Module, dict]:
    import open_clip

    name = name or CLIP_MODEL
    if name not in open_clip.list_models():
        raise UserError(f"open_clip has no model {name!r}: {nearest(name, open_clip.list_models())}")
    weights = weights or _clip_tag(name)
    try:
        model = open_clip.create_model(name, pretrained=weights)
    except Exception as error:  # open_clip, huggingface_hub and urllib each raise their own when offline
        raise _unobtainable(prior, error, f"clip:{name}:FILE") from error
    config = open_clip.get_model_preprocess_cfg(model)
    size = config["size"]
    config = {**config, "size": size if isinstance(size, int) else min(size)}
    return _ImageEncoder(model.visual), config


def _clip_tag(name: str) -> str:
    """The pretrained weights of a model named alone: LAION-2B's where there are such, else the first listed."""
    import open_clip

    tags = open_clip.list_pretrained_tags_by_model(name)
    if not tags:
        raise UserError(f"open_clip lists no weights for {name}: give a local file, prior=clip:{name}:FILE")
    if name == CLIP_MODEL:
        return CLIP_TAG
    return next((tag for tag in tags if tag.startswith("laion2b")), tags[0])


def _timm(prior: str, name: str, weights: str) -> tuple[nn.Module, dict]:
    import timm

    if not timm.is_model(name):
        raise UserError(f"timm has no model {name!r}: {nearest(name, timm.list_models())[:300]}")
    if weights:
        network = _load_local(prior, name, weights)
    else:
        try:
            network = timm.create_model(name, pretrained=True)
        except Exception as error:  # as above; timm also raises RuntimeError for models without weights
            raise _unobtainable(prior, error, f"timm:{name}:FILE") from error
    network.reset_classifier(0)
    config = timm.data.resolve_model_data_config(network)
    return network, {**config, "size": min(config["input_size"][1:])}


def _unobtainable(prior: str, error: Exception, local: str) -> UserError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return UserError(
        f"the weights of prior {prior} cannot be had ({reason}); give a local file, prior={local}, "
        "or a prior without download, prior=pca or prior=hog"
    )


def _load_local(prior: str, name: str, path: str) -> nn.Module:
    """The timm model with the file's weights: by name where all names agree, else by position where all shapes do.

    A file without the classifier is tried on the model without one.
    """
    import timm

    given = _read(prior, path)
    models = [timm.create_model(name, pretrained=False), timm.create_model(name, pretrained=False, num_classes=0)]
    for same in (_same_names, _same_shapes):
        for model in models:
            own = model.state_dict()
            if same(given, own):
                values = given if same is _same_names else dict(zip(own, given.values(), strict=True))
                model.load_state_dict(values, strict=True)
                return model
    raise UserError(
        f"prior {prior}: the {len(given)} tensors of {path} fit timm's {name} ({len(models[0].state_dict())} tensors) "
        "neither by name nor by position"
    )


def _same_names(given: dict[str, Tensor], own: dict[str, Tensor]) -> bool:
    return given.keys() == own.keys() and all(given[key].shape == own[key].shape for key in own)


def _same_shapes(given: dict[str, Tensor], own: dict[str, Tensor]) -> bool:
    return [value.shape for value in given.values()] == [value.shape for value in own.values()]


def _read(prior: str, path: str) -> dict[str, Tensor]:
    if not Path(path).is_file():
        raise UserError(f"prior {prior}: there is no file {path}")
    try:
        if path.endswith(".safetensors"):
            from safetensors.torch import load_file

            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and safetensors each raise their own
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"prior {prior}: {path} is no state dict of tensors: {reason}") from error
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError(f"prior {prior}: {path} is no state dict of tensors")
    return state
