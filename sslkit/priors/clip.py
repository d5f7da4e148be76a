"""The image encoder of a CLIP model of open_clip, downloaded or from a local file."""

import os
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from sslkit.backbones.pretrained import asking_the_hub, unobtainable
from sslkit.backbones.weight_files import check_records
from sslkit.errors import UserError
from sslkit.options.members import nearest
from sslkit.priors.base import NetworkPrior

CLIP_MODEL, CLIP_TAG = "ViT-B-32", "laion2b_s34b_b79k"


class ClipPrior(NetworkPrior):
    """`clip[:MODEL[:PRETRAINED]]`."""

    @classmethod
    def named(cls, name: str, *, size: int | None, precision: str) -> "ClipPrior":
        _, model, weights = (*name.split(":", 2), "", "")[:3]
        with torch.random.fork_rng(devices=[]):  # keeps the caller's random state
            network, config = _clip(name, model, weights)
        return cls(name, network, config, size=size, precision=precision)


class _ImageEncoder(nn.Module):
    """The image encoder of a CLIP model."""

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
        if is_file := os.path.exists(weights):
            check_records(weights)
        with nullcontext() if is_file else asking_the_hub(f"prior {prior}"):
            model = open_clip.create_model(name, pretrained=weights)
    except Exception as error:  # open_clip, huggingface_hub and urllib raise different errors when offline
        remedy = f"give a local file, prior=clip:{name}:FILE, or a prior without download, prior=pca or prior=hog"
        raise unobtainable(f"prior {prior}", error, remedy) from error
    config = open_clip.get_model_preprocess_cfg(model)
    size = config["size"]
    config = {**config, "size": size if isinstance(size, int) else min(size)}
    return _ImageEncoder(model.visual), config


def _clip_tag(name: str) -> str:
    """The default pretrained weights of a model: LAION-2B's if listed, otherwise the first listed."""
    import open_clip

    tags = open_clip.list_pretrained_tags_by_model(name)
    if not tags:
        raise UserError(f"open_clip lists no weights for {name}: give a local file, prior=clip:{name}:FILE")
    if name == CLIP_MODEL:
        return CLIP_TAG
    return next((tag for tag in tags if tag.startswith("laion2b")), tags[0])
