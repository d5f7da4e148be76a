"""Export the network of a zoo entry or of ready-made weights for timm, the Hugging Face hub, torchvision or ONNX.

python recipes/export.py checkpoint=runs/zoo/NAME to=hf
python recipes/export.py checkpoint=runs/zoo/NAME to=onnx out=backbone.onnx
"""

from dataclasses import dataclass
from typing import Any

from sslkit.cli.command import run_plain

from sslkit.errors import UserError
from sslkit.options.calls import merge
from sslkit.options.settings import setting
from sslkit.terminal import say
from sslkit.zoo import exporting


@dataclass
class Own:
    checkpoint: str | None = setting(None, "zoo entry, or ready-made weights: efficientnet_lite0, timm:NAME")


SETTINGS = merge((Own, exporting.Options))


def main(config: dict[str, Any]) -> None:
    if config["checkpoint"] is None:
        raise UserError("give checkpoint=, as in: python recipes/export.py checkpoint=runs/zoo/NAME to=hf")
    path = exporting.export(**config)
    say.line(f"written   {path}")
    say.line("load it without sslkit:")
    print(say.printable("\n".join(exporting.lines(path))))  # not folded or indented: Python takes it as it is


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
