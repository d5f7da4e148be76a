"""Export the network of a zoo entry or of ready-made weights for timm, the Hugging Face hub, torchvision or ONNX.

python recipes/export.py entry=runs/zoo/NAME to=hf
python recipes/export.py entry=runs/zoo/NAME to=onnx out=backbone.onnx
"""

from dataclasses import dataclass
from typing import Any

from sslkit.cli.command import run_plain

from sslkit.errors import UserError
from sslkit.options.settings import setting
from sslkit.terminal import say
from sslkit.zoo import exporting


@dataclass
class Settings:
    entry: str | None = setting(None, "folder of a zoo entry, or ready-made weights: efficientnet_lite0, timm:NAME")
    to: str | None = setting(None, f"format: {', '.join(exporting.names())}", choices=exporting.names())
    out: str | None = setting(
        None,
        "file (torchvision: and a .json beside it) or folder to write; an earlier export is replaced, other files of a "
        "folder stay; null: exports/ in the entry's folder, or here",
    )
    trust: str | None = setting(None, "package.module:function: own code that a card may name and that is run")


def main(config: dict[str, Any]) -> None:
    for name in ("entry", "to"):
        if config[name] is None:
            raise UserError(f"give {name}=, as in: python recipes/export.py entry=runs/zoo/NAME to=hf")
    path = exporting.export(config["entry"], config["to"], config["out"], trust=config["trust"])
    say.line(f"written   {path}")
    say.line("load it without sslkit:")
    print(say.printable("\n".join(exporting.lines(path))))  # not folded or indented: Python takes it as it is


if __name__ == "__main__":
    run_plain(main, Settings(), __doc__, {})
