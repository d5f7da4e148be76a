"""The contract of every export format: which networks it can hold, how it is written and read back."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sslkit.backbones import network_lines
from sslkit.backbones.network_lines import TimmNetwork
from sslkit.backbones.pretrained import take_classifier
from sslkit.data.items import item_of
from sslkit.errors import UserError
from sslkit.zoo.about import About
from sslkit.zoo.classifier import IDENTITY, NAME, Classifier
from sslkit.zoo.entry import CARD, ZooEntry, preprocessing
from sslkit.zoo.heads import DETECTOR, SEGMENTER

CONTRACT = "Target"
FEATURES = "features"  # of the tensors of `Whole`


@dataclass(frozen=True)
class Loaded:
    """What a file holds: net, normalised images -> features, in eval mode; the metadata; the classifier, if any."""

    net: nn.Module
    about: About
    classifier: Classifier | None = None


@dataclass(frozen=True)
class Source:
    """The entry to export.

    net: its network with its weights, in eval mode. network: how timm makes it, None if timm does not.
    about: the metadata of the weights. classifier: of the entry, None without one.
    """

    entry: ZooEntry
    net: nn.Module
    network: TimmNetwork | None
    about: About
    classifier: Classifier | None = None

    @classmethod
    def from_entry(cls, entry: ZooEntry, trust: str | Sequence[str] | None = ()) -> "Source":
        """Raises UserError for a detector or a segmenter, and for an entry that was trained from a module object.

        trust: see `ZooEntry.backbone`.
        """
        if not entry.card.get("backbone", {"lines": True})["lines"]:
            raise UserError(
                f"{entry.folder} was trained from a module object, which cannot be rebuilt: to export, train with "
                "backbone=NAME or backbone=package.module:function"
            )
        if field := next((name for name in (DETECTOR, SEGMENTER) if name in entry.card), None):
            source = entry.card.get("init", {}).get("source", "its start")
            raise UserError(
                f"{entry.folder} is a {field}, which no format holds: predict with it here, in Python "
                f"sslkit.load({str(entry.folder)!r}).predict(images), or export {source}, from which it was trained"
            )
        net = entry.backbone(trust=trust)
        about, classifier = about_entry(entry, net), entry.classifier() if NAME in entry.card else None
        if classifier:
            halves = {"half_widths": classifier.half_widths}
            about = replace(about, classes=classifier.classes, link=classifier.link, **halves)
        return cls(entry, net, network_lines.parse(entry.card["backbone"]["lines"]), about, classifier)

    @torch.no_grad()
    def with_head(self) -> "Source":
        """The same with the classifier as the last layer of timm's network; itself without one.

        Raises UserError for a classifier of several layers, and for a network whose last layer takes other features.
        """
        if self.classifier is None:
            return self
        size, others = len(self.classifier.classes), "export it to onnx or torch_export, which hold any"
        if not isinstance(layer := self.classifier.layers[0], nn.Linear) or len(self.classifier.layers) > 1:
            raise UserError(f"{self.entry.folder}: its classifier has several layers, and timm's have one: {others}")
        network = replace(self.network, arguments={**self.network.arguments, "num_classes": size})
        net = network.build(str(self.entry.folder)).eval()
        net.load_state_dict(self.net.state_dict(), strict=False)
        head = net.get_classifier()
        if isinstance(head, nn.Linear) and head.weight.shape == layer.weight.shape:
            head.load_state_dict({**head.state_dict(), **layer.state_dict()})
        image = torch.linspace(-2, 2, math.prod(self.about.input_size)).view(1, *self.about.input_size)
        expected = layer(self.net(image))
        if not torch.allclose(net(image), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max())):
            raise UserError(f"{self.entry.folder}: timm's {network.model} classifies other features: {others}")
        return replace(self, net=net, network=network, about=replace(self.about, lines=tuple(network.lines())))

    def state_dict(self) -> dict[str, Tensor]:
        """The network's tensors by name, on the CPU."""
        return {key: value.detach().cpu().contiguous() for key, value in self.net.state_dict().items()}


class Target:
    """An export format of the zoo. Subclasses are found by the name of their file.

    suffix: of the written file; "" for a folder. last: of a folder the file without which the others are nothing.
    """

    suffix: ClassVar[str]
    last: ClassVar[str] = ""

    def refusal(self, source: Source) -> str:
        """The reason why this format cannot hold the network; "" if it can. Writes nothing."""
        return "" if source.network else f"its network is made by {source.entry.card['backbone']['name']}, not by timm"

    def prepare(self, source: Source) -> Source:
        """The source as this format holds it, a classifier inside its network. Raises UserError if it cannot."""
        return source.with_head()

    def write(self, source: Source, path: Path, name: str) -> None:
        """Write to `path`, a temporary file or an empty folder, later renamed to `name`.

        Raises UserError if a package is missing.
        """
        raise NotImplementedError

    def side(self, source: Source, path: Path) -> str:
        """The JSON to write beside the file; "" if the file needs none."""
        return ""

    def lines(self, about: About, name: str) -> list[str]:
        """Python that loads the network without sslkit and reads pictures for it; it binds `net`.

        name: of the file or folder, as from the folder where the lines are run.
        """
        raise NotImplementedError

    def owns(self, path: Path) -> bool:
        """Return whether a path is of this format, without reading weights."""
        raise NotImplementedError

    def find_obstacle(self, path: Path) -> Path | None:
        """A file or folder that an export to `path` would change, beside the file asked for; None for earlier exports.

        It is not ours, and the export is refused.
        """
        return None

    def about(self, path: Path) -> About:
        """The metadata in a path of this format. Raises UserError for a damaged file."""
        return self.load(path).about

    def load(self, path: Path) -> Loaded:
        """The network of a path of this format. Raises UserError for a damaged file."""
        raise NotImplementedError


class Whole(nn.Module):
    """A network with its classifier, as files hold it: normalised images (B, C, S, S) -> the tensors of `names_of`.

    Without a classifier the features are no tuple.
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.net, self.classifier = source.net, source.classifier
        self.layers = source.classifier and source.classifier.layers

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        features = self.net(images)
        if self.layers is None:
            return features
        outputs = self.layers(features)
        if self.classifier.link == IDENTITY:
            return outputs, features
        return self.classifier.predictions(outputs), outputs, features


def names_of(link: str | None) -> list[str]:
    """The names of the tensors that `Whole` returns, what is predicted first."""
    if link is None:
        return [FEATURES]
    return ["numbers", FEATURES] if link == IDENTITY else ["probabilities", "outputs", FEATURES]


def about_entry(entry: ZooEntry, net: nn.Module) -> About:
    """The metadata of an entry's network. Raises UserError for a card that lacks some of them."""
    card = entry.card
    missing = [name for name in ("backbone", "normalize") if name not in card]
    if missing:
        raise UserError(f"{entry.folder / CARD} has no field {' and no '.join(missing)}")
    body, size = card["backbone"], card["backbone"]["image_size"]
    with torch.no_grad():
        width = net(torch.zeros(1, *item_of(body.get("frames")).shape(body["in_chans"], size))).shape[1]
    return replace(about_card(card, entry.folder.resolve().name, width), range=entry.range)


def about_card(card: Mapping[str, Any], name: str, width: int) -> About:
    """The metadata that a card has of its network."""
    body, pixels = card["backbone"], preprocessing(card)
    del pixels["input_size"]
    return About(
        name=name,
        method=card.get("method", ""),
        lines=tuple(body["lines"]),
        width=width,
        image_size=body["image_size"],
        in_chans=body["in_chans"],
        **pixels,
        frames=body.get("frames"),
        stride=body.get("stride"),
    )


def network_of(about: About, path: Path) -> TimmNetwork:
    """Raises UserError if `about`, read from `path`, is not of a timm network."""
    network = network_lines.parse(about.lines)
    if network is None:
        raise UserError(f"{path}: the lines in it make no timm network, and are not run: export again")
    return network


def load_weights(about: About, state: dict[str, Tensor], path: Path) -> Loaded:
    """The network of `about`, with the weights of `path`. Raises UserError if they do not fit."""
    net = network_of(about, path).build(str(path))
    try:
        net.load_state_dict(state, strict=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split()[:30])
        raise UserError(f"the weights in {path} do not fit the network of its metadata: {reason}") from error
    if about.classes is None:
        return Loaded(net.eval(), about)
    layer = take_classifier(net, about.input_size)
    if layer is None or layer.out_features != len(about.classes):
        raise UserError(f"{path}: its network has no classifier of {len(about.classes)} classes: export it again")
    return Loaded(net.eval(), about, Classifier(nn.Sequential(layer), about.classes, about.link, {}, about.half_widths))


def pretrained_cfg(about: About) -> dict[str, object]:
    """The preprocessing of images in timm's terms, for `pretrained_cfg_overlay`."""
    return {
        "input_size": about.input_size,
        "mean": about.mean,
        "std": about.std,
        "crop_pct": about.crop_pct,
        "interpolation": about.interpolation,
        "crop_mode": about.crop_mode,
    }
