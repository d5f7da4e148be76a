"""A state dict with torchvision's names that loads strictly into its ResNets, and a .json beside it.

The .json holds the network, its preprocessing, the lines that load it, and the digest of its weights file.
"""

import json
from contextlib import suppress
from pathlib import Path

import torch

from sslkit.backbones.weight_files import read_weights
from sslkit.errors import UserError
from sslkit.files import reading
from sslkit.zoo import weights
from sslkit.zoo.about import About
from sslkit.zoo.exporting.base import Loaded, Source, Target, load_weights, network_of, pretrained_cfg
from sslkit.zoo.loading import PICTURE, picture_lines, torchvision_transform

# timm and torchvision have these under the same name, with the same tensors.
RESNETS = (
    *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "wide_resnet101_2"),
    *("resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d"),
)
PLAIN = {"num_classes", "in_chans"}


class Torchvision(Target):
    """torchvision's ResNets; other channels and a changed stem each add one line."""

    suffix = ".pth"

    def refusal(self, source: Source) -> str:
        if reason := super().refusal(source):
            return reason
        name = source.entry.card["backbone"]["name"]
        if _name(source.network.model) not in RESNETS or not source.network.arguments.keys() <= PLAIN:
            return f"{name} is none of torchvision's networks that timm also has ({', '.join(RESNETS)})"
        return ""

    def write(self, source: Source, path: Path, name: str) -> None:
        torch.save(source.state_dict(), path)

    def side(self, source: Source, path: Path) -> str:
        load = self.lines(source.about, path.name)
        return json.dumps(source.about.content(sha256=weights.sha256(path), load=load), indent=2) + "\n"

    def lines(self, about: About, name: str) -> list[str]:
        network = network_of(about, Path(name))
        channels = f"net.conv1 = torch.nn.Conv2d({about.in_chans}, 64, 7, 2, 3, bias=False)"
        pixels, classes = pretrained_cfg(about), f", num_classes={len(about.classes)}" if about.classes else ""
        return [
            "import torch, torchvision",
            f"net = torchvision.models.{_name(network.model)}(weights=None{classes})",
            *([] if classes else ["net.fc = torch.nn.Identity()"]),
            *([channels] if about.in_chans != 3 and not network.changes else []),
            *(line for line in network.change_lines if not line.startswith("import")),
            f"net.load_state_dict(torch.load({name!r}, weights_only=True), strict=True)",
            *picture_lines(torchvision_transform(pixels), pixels, about.range, about.use.format(PICTURE)),
            "net.eval()",
        ]

    def owns(self, path: Path) -> bool:
        return path.is_file() and path.suffix == self.suffix

    def find_obstacle(self, path: Path) -> Path | None:
        side = path.with_suffix(".json")
        if not side.exists():
            return None
        with suppress(UserError):
            metadata = reading.read_json(side, "")
            if isinstance(metadata, dict) and {"sha256", "load"} <= metadata.keys():
                return None
        return side

    def load(self, path: Path) -> Loaded:
        state = read_weights(path, "sslkit.load")
        side = path.with_suffix(".json")
        if not side.is_file():
            raise UserError(
                f"{path} needs {side.name} beside it, the description of its network: copy or export both, "
                f"or name the network, timm:NAME:{path}"
            )
        metadata = reading.read_json(side, "copy or export both again")
        about = About.from_content(metadata, side)
        if metadata.get("sha256") != weights.sha256(path):
            raise UserError(f"{side} is about another file than {path.name}: copy or export both together")
        return load_weights(about, state, path)


def _name(model: str) -> str:
    """The model name without timm's tag of weights."""
    return model.partition(".")[0]
