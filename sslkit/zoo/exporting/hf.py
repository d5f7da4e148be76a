"""A folder for the Hugging Face hub: config.json in timm's format, model.safetensors and a README.md.

Plain `timm.create_model("local-dir:FOLDER", pretrained=True)` loads it, and "hf-hub:USER/NAME" once it is uploaded. A
network with a changed stem is refused there, and is made by the lines in README.md.
"""

import dataclasses
import json
import re
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

import torch
from torch import nn

from sslkit.backbones import network_lines, timm_allowed
from sslkit.backbones.network_lines import TimmNetwork, timm_call
from sslkit.backbones.pretrained import timm_network
from sslkit.backbones.weight_files import read_weights
from sslkit.backbones.words import Word
from sslkit.data.resizing import Resizing
from sslkit.errors import UserError
from sslkit.files import reading
from sslkit.zoo.about import About
from sslkit.zoo.classifier import NAME
from sslkit.zoo.entry import is_ready_made
from sslkit.zoo.exporting.base import Loaded, Source, Target, about_card, load_weights, network_of, pretrained_cfg
from sslkit.zoo.loading import PICTURE, TIMM_TRANSFORM, load_lines, picture_lines
from sslkit.zoo.table import BEFORE, NOTES, measure

CONFIG, WEIGHTS, README = "config.json", "model.safetensors", "README.md"
OLDER = "pytorch_model.bin"
KEY = "sslkit"


class HuggingFace(Target):
    """timm's hub folder; a network with a changed stem is made by the lines in README.md."""

    suffix = ""
    last = CONFIG

    def write(self, source: Source, path: Path, name: str) -> None:
        import safetensors.torch

        (path / WEIGHTS).write_bytes(safetensors.torch.save(source.state_dict(), metadata={"format": "pt"}))
        (path / CONFIG).write_text(json.dumps(self._config(source), indent=2) + "\n", encoding="utf-8")
        (path / README).write_text(_model_card(source, self.lines(source.about, ".")), encoding="utf-8")

    def lines(self, about: About, name: str) -> list[str]:
        network, pixels = network_of(about, Path(name)), pretrained_cfg(about)
        use = about.use.format(PICTURE)
        if network.changes:
            return load_lines(network.lines(), pixels, f"{name}/{WEIGHTS}", range=about.range, use=use)
        made = ["import timm", timm_call(f"local-dir:{name}", {"pretrained": True})]
        return [*made, *picture_lines([TIMM_TRANSFORM], pixels, about.range, use), "net.eval()"]

    def owns(self, path: Path) -> bool:
        return path.is_dir() and (path / CONFIG).is_file() and _weights_of(path).is_file()

    def find_obstacle(self, path: Path) -> Path | None:
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return None
        with suppress(UserError):
            if self.owns(path) and _is_ours(_config_of(path)):
                return None
        return path

    def load(self, path: Path) -> Loaded:
        config = _config_of(path)
        if not _is_ours(config):
            return _of_timm(path, config)
        about = About.from_content(config[KEY], path / CONFIG)
        return load_weights(about, read_weights(path / WEIGHTS, "sslkit.load"), path)

    def _config(self, source: Source) -> dict[str, Any]:
        about, network = source.about, source.network
        classes, pixels = about.classes or (), pretrained_cfg(about)
        architecture = network.model.partition(".")[0]
        cfg = source.net.pretrained_cfg  # of the architecture: the layers changed by another head or other channels
        fields = {key: cfg[key] for key in ("classifier", "fixed_input_size") if key in cfg}
        fields["first_conv"] = _first_conv(source.net, cfg.get("first_conv"))
        return {
            # of a changed network a name that timm and transformers refuse: they would make another one
            "architecture": architecture + (", its stem changed, see README.md" if network.changes else ""),
            "num_classes": len(classes),
            **({"label_names": list(classes)} if classes else {}),
            "num_features": about.width,
            "pretrained_cfg": {"tag": KEY, "custom_load": False, "num_classes": len(classes), **pixels, **fields},
            "model_args": {k: v for k, v in network.arguments.items() if k != "num_classes"},
            KEY: about.content(change_lines=network.change_lines),
        }


def _config_of(folder: Path) -> Any:
    return reading.read_json(folder / CONFIG, "export or copy it again")


def _weights_of(folder: Path) -> Path:
    """The file of weights, of the older form where there is no other."""
    older = folder / OLDER
    return older if older.is_file() and not (folder / WEIGHTS).is_file() else folder / WEIGHTS


def _of_timm(path: Path, given: Any) -> Loaded:
    """The network of a folder in timm's format that others made. Raises UserError for other formats."""
    name = given.get("architecture") if isinstance(given, dict) else None
    if not isinstance(name, str):
        kind = given.get("model_type") if isinstance(given, dict) else None
        raise UserError(
            f"{path / CONFIG} describes no network of timm"
            + (f" but transformers' {kind}" if kind else "")
            + f": name the network of timm with these weights, timm:NAME:{_weights_of(path)}, or load it by its own "
            "library and give the module in Python, sslkit.load(module)"
        )
    arguments = given.get("model_args") or {}
    if fault := timm_allowed.fault(name, arguments):
        raise UserError(f"{path / CONFIG}: {fault}")
    made = timm_network(Word("timm", name, str(_weights_of(path)), arguments), where=str(path), local="")
    config = made.config | {key: value for key, value in (given.get("pretrained_cfg") or {}).items() if value}
    channels, size = config["input_size"][:2]
    with torch.no_grad():
        width = made.net(torch.zeros(1, channels, size, size)).shape[1]
    network = TimmNetwork(name, arguments | {"num_classes": 0})
    card = {
        "backbone": {"lines": network.lines(), "image_size": size, "in_chans": channels},
        "normalize": {"mean": config["mean"], "std": config["std"]},
    }
    about = about_card(card, path.resolve().name, width)
    return Loaded(made.net.eval(), dataclasses.replace(about, **Resizing.of_timm(config, None).of_card()))


def _is_ours(config: Any) -> bool:
    return isinstance(config, dict) and KEY in config


def _first_conv(net: nn.Module, told: Any) -> Any:
    """The layer that timm adapts to other channels: the architecture's first, or this network's if its stem differs."""
    convolutions = [name for name, module in net.named_modules() if isinstance(module, (nn.Conv1d, nn.Conv2d))]
    names = [told] if isinstance(told, str) else list(told or ())
    return told if names and all(name in convolutions for name in names) else next(iter(convolutions), None)


def _model_card(source: Source, load: list[str]) -> str:
    """Markdown with front matter. load: lines of Python that load the folder without sslkit."""
    about, card = source.about, source.entry.card
    outputs = f"{len(about.classes)} {about.use.partition(' ')[0]}" if about.classes else f"{about.width} features"
    return "\n".join(
        [
            *_front_matter(card),
            f"# {_plain(about.name)}",
            "",
            f"A {_plain(network_name(card))} that gives {outputs} of images of {about.image_size} pixels "
            f"with {about.in_chans} channel{'s' if about.in_chans != 1 else ''}, {_origin(card)}.",
            "",
            "## Load it",
            "",
            "```python",
            *load,
            *([f"classes = {list(about.classes)}"] if about.classes else []),
            "```",
            "",
            "Run it in this folder. " + _from_hub(source),
            "",
            *_training(card),
            *_numbers(source),
        ]
    )


def _front_matter(card: dict[str, Any]) -> list[str]:
    """YAML, whose texts are written as JSON, which is a part of it."""
    words = [word for word in card.get("method", "").split("+") if word]
    learned = {True: ["supervised"], False: [] if "init" in card else ["self-supervised"]}.get(card.get("labels"), [])
    task = "image-classification" if NAME in card else "image-feature-extraction"
    tags = [f"- {json.dumps(word)}" for word in dict.fromkeys(("timm", "sslkit", *learned, *words))]
    return ["---", "library_name: timm", f"pipeline_tag: {task}", "tags:", *tags, "---", ""]


def network_name(card: dict[str, Any]) -> str:
    """timm's name of a card's network, whose `name` may be the word of ready-made weights."""
    network = network_lines.parse(card["backbone"]["lines"])
    return network.model if is_ready_made(card["backbone"]["name"]) and network else card["backbone"]["name"]


def _origin(card: dict[str, Any]) -> str:
    """`pretrained with sslkit by byol, from the weights of ...`; of ready-made weights only their source."""
    start = f"the weights of {_plain(_start(card))}" if "init" in card else ""
    if not card.get("method"):
        return f"with {start}, exported by sslkit" if start else "exported by sslkit"
    how = "trained on labels" if card.get("labels") else "pretrained"
    return f"{how} with sslkit by `{_plain(card['method'])}`" + (f", from {start}" if start else "")


def _start(card: dict[str, Any]) -> str:
    """The word and the digest of the weights that a network started from, without folders of this machine."""
    *kind, file = card["init"]["source"].split(":")
    return f"{':'.join([*kind, PurePath(file).name])} (sha256 {card['init']['sha256'][:12]})"


def _plain(value: Any) -> str:
    """A text of a card in one line that Markdown shows as it is, also in a table."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(str(value).split()))


def _from_hub(source: Source) -> str:
    if not source.network.changes:
        return "From the hub, write `hf-hub:USER/NAME` for `local-dir:.`. The architecture is timm's as it stands."
    return (
        "From the hub, `huggingface_hub.snapshot_download('USER/NAME')` is the folder. "
        f"The stem was changed for small images ({source.entry.card['backbone'].get('stem', 'see the lines')}): "
        "without the lines after `create_model` the weights do not fit, and timm and transformers refuse the folder."
    )


def _training(card: dict[str, Any]) -> list[str]:
    data = card.get("data", {})
    facts = {
        "method": card.get("method"),
        "started from": _start(card) if "init" in card else None,
        "data": data.get("source"),
        "training images": data.get("images"),
        "licence of the data": data.get("licence"),
        "epochs": card.get("epochs"),
        "seed": card.get("seed"),
        "date": card.get("date"),
        "values": _values(data.get("range")),
        "pixels": f"in [0, 1], mean {card['normalize']['mean']}, std {card['normalize']['std']} by channel",
    }
    rows = [f"| {name} | {_plain(value)} |" for name, value in facts.items() if value is not None]
    return ["## Training", "", "| | |", "|---|---|", *rows, ""]


def _values(limits: list[float] | None) -> str | None:
    return limits and f"pixels of more than 8 bits: {limits[0]:g} to {limits[1]:g} become 0 to 1"


def _numbers(source: Source) -> list[str]:
    """The entry's results, each with its source; a sentence if there are none."""
    before = source.entry.card.get("before", {})  # has a column of its own
    numbers = {name: number for name, number in measure(source.entry).items() if name != BEFORE}
    if not numbers:
        return ["## Numbers", "", "Nothing was measured.", ""]
    images = source.entry.card.get("after", {}).get("n")
    rows = []
    for name, number in numbers.items():
        shown = f"{number.value:.1f}" if number.key == "rankme" else f"{100 * number.value:.1f} %"
        untrained = f"{100 * before[number.key]:.1f} %" if number.key in before else "-"
        rows.append(f"| {name} | {shown} | {untrained} | {NOTES.get(number.mark, 'at the end of training')} |")
    trained = images and any(number.mark != "*" for number in numbers.values())
    counted = [f"At the end of training: quick kNN and quick probe on {images:,.0f} images.", ""] if trained else []
    head = ["| | this network | before | measured |", "|---|---:|---:|---|"]
    return ["## Numbers", "", *head, *rows, "", *counted]
