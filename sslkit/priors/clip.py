"""The image encoder of a CLIP model of open_clip, downloaded or from a local file."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from sslkit.backbones.fitting import fill
from sslkit.backbones.pretrained import asking_the_hub, unobtainable
from sslkit.errors import UserError
from sslkit.options.members import nearest
from sslkit.priors import _clip_files
from sslkit.priors.base import NetworkPrior
from sslkit.terminal import say

CLIP_MODEL, CLIP_TAG = "ViT-B-32", "laion2b_s34b_b79k"
_IMAGES = ("mean", "std", "interpolation", "resize_mode")  # the preprocessing, in open_clip's table of weights
_BIG_VISION = ".npz"  # of SigLIP's first release, which open_clip converts


class ClipPrior(NetworkPrior):
    """`clip[:MODEL[:PRETRAINED]]`, PRETRAINED a tag, a local file, or TAG:FILE for a file of that tag's weights.

    The tag says what a file does not: whether the network has QuickGELU, and how its images are prepared. Of a file
    alone, OpenAI's own excepted, they are those of all tags of the model; where these differ, the model's default with
    GELU and OpenAI's mean and std, which is said.
    """

    @classmethod
    def from_name(cls, name: str, *, size: int | None, precision: str) -> "ClipPrior":
        _, model, weights = (*name.split(":", 2), "", "")[:3]
        with torch.random.fork_rng(devices=[]):  # keeps the caller's random state
            network, config = _clip(name, model or CLIP_MODEL, weights)
        return cls(name, network, config, size=size, precision=precision)


class _ImageEncoder(nn.Module):
    """The image encoder of a CLIP model."""

    def __init__(self, visual: nn.Module) -> None:
        super().__init__()
        self.visual = visual

    def forward(self, x: Tensor) -> Tensor:
        embedding = self.visual(x)
        return embedding[0] if isinstance(embedding, tuple) else embedding  # CoCa's gives tokens, too


def _clip(prior: str, name: str, weights: str) -> tuple[nn.Module, dict]:
    import open_clip

    if name not in open_clip.list_models():
        raise UserError(f"open_clip has no model {name!r}: {nearest(name, open_clip.list_models())}")
    tag, file = _split(prior, name, weights or _clip_tag(name))
    if file and not file.endswith(_BIG_VISION):
        model, settings = _of_file(prior, name, tag, file)
    else:
        settings = _settings(name, tag)
        model = _create_model(prior, name, settings, file or tag)
    config = {**open_clip.get_model_preprocess_cfg(model), **{key: settings[key] for key in _IMAGES if key in settings}}
    size = config["size"]
    config["size"] = size if isinstance(size, int) else min(size)
    return _ImageEncoder(model.visual), config


def _split(prior: str, name: str, weights: str) -> tuple[str, str]:
    """The tag and the local file, one of them maybe empty. Raises UserError for what is neither."""
    import open_clip

    if os.path.exists(weights):
        return "", weights
    tag, _, file = weights.partition(":")
    if not open_clip.is_pretrained_cfg(name, tag):
        tags = open_clip.list_pretrained_tags_by_model(name)
        listed = nearest(tag, tags) if tags else "it lists none"
        raise UserError(f"prior {prior}: {weights} is no file, and no weights of {name} in open_clip's list: {listed}")
    if file and not os.path.isfile(file):
        raise UserError(f"prior {prior}: there is no file {file}")
    return tag, file


def _of_file(prior: str, name: str, tag: str, file: str) -> tuple[nn.Module, dict[str, Any]]:
    """The model, with its image encoder's weights from a file, and the settings of these weights."""
    content, is_openai = _clip_files.read_clip(file, f"prior {prior}")
    settings = _settings(name, tag) if tag else {"quick_gelu": True} if is_openai else _common_settings(prior, name)
    model = _create_model(prior, name, settings, "")
    remedy = f"name the model of these weights, clip:MODEL:{file}"
    match = fill(model.visual, content, network=name, file=file, remedy=remedy)
    say.line(f"prior     {match.line}")
    return model, settings


def _create_model(prior: str, name: str, settings: dict[str, Any], weights: str) -> nn.Module:
    """The model of open_clip, with the weights of a tag or a file, or with random ones."""
    import open_clip

    source = {"pretrained": weights} if weights else {"pretrained": None, "pretrained_hf": False}
    asks = weights and not os.path.exists(weights)
    try:
        with asking_the_hub(f"prior {prior}") if asks else nullcontext(), nullcontext() if weights else _mute():
            return open_clip.create_model(name, force_quick_gelu=bool(settings.get("quick_gelu")), **source)
    except Exception as error:  # open_clip, huggingface_hub and urllib raise different errors when offline
        remedy = f"give a local file, prior=clip:{name}:FILE, or a prior without download, prior=pca or prior=hog"
        raise unobtainable(f"prior {prior}", error, remedy) from error


@contextmanager
def _mute() -> Iterator[None]:
    """Leave out open_clip's warning that a network without weights is random: its weights follow."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(level)


def _settings(name: str, tag: str) -> dict[str, Any]:
    """Return open_clip's settings of a tag's weights, without those that its table leaves to their defaults."""
    import open_clip

    about = open_clip.get_pretrained_cfg(name, tag)
    return {key: about[key] for key in (*_IMAGES, "quick_gelu") if about.get(key) is not None}


def _common_settings(prior: str, name: str) -> dict[str, Any]:
    """The settings that all tags of a model have; none where they differ, which is said."""
    import open_clip

    tags = open_clip.list_pretrained_tags_by_model(name)
    different = {repr(_settings(name, tag)): tag for tag in tags}
    if len(different) > 1:
        say.line(
            f"prior     {prior} is taken with GELU and OpenAI's mean and std; the weights of {name} differ in these: "
            f"clip:{name}:TAG:FILE takes those of a tag ({', '.join(different.values())}, ...)"
        )
        return {}
    return _settings(name, tags[0]) if tags else {}


def _clip_tag(name: str) -> str:
    """The default pretrained weights of a model: LAION-2B's if listed, otherwise the first listed."""
    import open_clip

    tags = open_clip.list_pretrained_tags_by_model(name)
    if not tags:
        raise UserError(f"open_clip lists no weights for {name}: give a local file, prior=clip:{name}:FILE")
    if name == CLIP_MODEL:
        return CLIP_TAG
    return next((tag for tag in tags if tag.startswith("laion2b")), tags[0])
