"""A folder for the Hugging Face hub: config.json in timm's format, model.safetensors and a README.md.

Plain `timm.create_model("local-dir:FOLDER", pretrained=True)` loads it, and "hf-hub:USER/NAME" once it is uploaded.
"""

import json
from pathlib import Path
from typing import Any

from torch import nn

from sslkit.backbones.weight_files import read_weights
from sslkit.errors import UserError
from sslkit.files import json_files
from sslkit.zoo.exporting._model_card import model_card
from sslkit.zoo.exporting.base import Source, Target, filled, network_of, pretrained_cfg, timm_call
from sslkit.zoo.frozen import About, Frozen

CONFIG, WEIGHTS, README = "config.json", "model.safetensors", "README.md"
KEY = "sslkit"


class HuggingFace(Target):
    """timm's hub folder; a changed stem adds one line, in README.md and config.json."""

    suffix = ""

    def write(self, source: Source, path: Path, name: str) -> None:
        import safetensors.torch

        (path / WEIGHTS).write_bytes(safetensors.torch.save(source.state_dict(), metadata={"format": "pt"}))
        (path / CONFIG).write_text(json.dumps(self._config(source), indent=2) + "\n")
        (path / README).write_text(model_card(source, self.lines(source.about, name)))

    def lines(self, about: About, name: str) -> list[str]:
        changes = network_of(about, Path(name)).change_lines
        return ["import timm", timm_call(f"local-dir:{name}", {"pretrained": True}), *changes, "net.eval()"]

    def owns(self, path: Path) -> bool:
        return path.is_dir() and all((path / name).is_file() for name in (CONFIG, WEIGHTS))

    def load(self, path: Path) -> Frozen:
        given = json_files.read(path / CONFIG, "export or copy it again")
        if not isinstance(given, dict) or KEY not in given:
            raise UserError(f"{path} was not exported by sslkit; timm.create_model('local-dir:{path}') may load it")
        about = About.from_json(json.dumps(given[KEY]), path / CONFIG)
        return filled(about, read_weights(path / WEIGHTS, "sslkit.zoo.load"), path)

    def _config(self, source: Source) -> dict[str, Any]:
        about, network = source.about, source.network
        own = source.net.pretrained_cfg  # of the architecture: the layers changed by another head or other channels
        kept = {key: own[key] for key in ("classifier", "fixed_input_size") if key in own}
        kept["first_conv"] = _first_conv(source.net, own.get("first_conv"))
        return {
            "architecture": network.model.partition(".")[0],
            "num_classes": 0,
            "num_features": about.width,
            "pretrained_cfg": {"tag": KEY, "custom_load": False, "num_classes": 0, **pretrained_cfg(about), **kept},
            "model_args": {k: v for k, v in network.arguments.items() if k != "num_classes"},
            KEY: json.loads(about.to_json(change_lines=network.change_lines)),
        }


def _first_conv(net: nn.Module, told: Any) -> Any:
    """The layer that timm adapts to other channels: the architecture's first, or this network's if its stem differs."""
    convolutions = [name for name, module in net.named_modules() if isinstance(module, (nn.Conv1d, nn.Conv2d))]
    names = [told] if isinstance(told, str) else list(told or ())
    return told if names and all(name in convolutions for name in names) else next(iter(convolutions), None)
