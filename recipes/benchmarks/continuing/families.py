"""Which objective goes on from given weights of which family of networks: two steps of each on a tiny network.

python recipes/benchmarks/continuing/families.py   (writes families.md, which a test compares)
"""

import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
import safetensors.torch
import timm
import torch
from torch import Tensor

import sslkit
from sslkit import objectives, regularizers
from sslkit.composition.method import Method
from sslkit.errors import UserError
from sslkit.files.writing import write_text
from sslkit.options.members import signature
from sslkit.terminal.tables import markdown
from sslkit.training.build import build_method, choose
from sslkit.training.config import Config
from sslkit.training.data import Data, open_data
from sslkit.training.optimizers import make_optimizer
from sslkit.training.settled import Settled
from sslkit.training.step import Pretraining

PAGE = Path(__file__).with_suffix(".md")
IMAGES, STEPS = 16, 2  # of a step; in the first the new parts alone
SMALL = {"dim": 8, "hidden": 16, "queue_size": 24, "prototypes": 12, "queue_start": 1}  # where an objective has it
TINY = {"embed_dim": 48, "depth": 2, "num_heads": 2}
RUNS = "runs"
ABOUT = """# Objectives that go on from given weights

Two steps of `init=` with the defaults, the new parts alone in the first, on a tiny network of each family with random
weights; `python recipes/benchmarks/continuing/families.py` writes this page, and a test compares it. `{runs}`: nothing
is refused, and the network moves. It does not say that the features get better.

"""
HARM = {  # of what was measured elsewhere, by method
    "mae": "costs kNN: in a public study (akshayg108/continued-pretraining; its tables read, not run again) going on "
    "from DINOv3 or CLIP by MAE lost up to 76 points of kNN (Food101), 61 % of it by the pooling. U-MAE, I-JEPA and "
    "data2vec were not measured there.",
}


@dataclass(frozen=True)
class Family:
    """name, arguments: of timm's tiny network. side: pixels of an image; local crops of it fit the network."""

    name: str
    side: int = 64
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def word(self) -> str:
        call = ", ".join(f"{key}={value}" for key, value in self.arguments.items())
        return f"timm:{self.name}({call})" if call else f"timm:{self.name}"

    def write(self, folder: Path) -> str:
        """Save weights as their author would; returns the word for `init=`. Each parameter is far from 0 and 1."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            net = timm.create_model(self.name, **self.arguments)
            for parameter in net.parameters():
                parameter.data += 0.05 * torch.randn_like(parameter)
        file = folder / f"{self.name}.safetensors"
        safetensors.torch.save_file(net.state_dict(), file)
        return f"{self.word}:{file}"


FAMILIES = {
    "ViT": Family("vit_tiny_patch16_224", arguments=TINY),
    "DINOv2 with registers": Family("vit_small_patch14_reg4_dinov2", side=56, arguments=TINY),
    "DINOv3": Family("vit_small_patch16_dinov3", arguments=TINY),
    "ConvNeXt": Family("test_convnext", side=96),
    "ResNet": Family("test_resnet"),
    "EfficientNet": Family("test_efficientnet"),
}


def members() -> list[str]:
    """Every objective, and one with each regulariser that compares networks, as anchors do."""
    anchors = [name for name in regularizers.names() if regularizers.find(name).reads == "map"]
    return [*objectives.names(), *(f"simclr+{name}" for name in anchors)]


class Trial:
    """Runs from weights of each family, which are written to a folder."""

    def __init__(self, folder: Path) -> None:
        self.words = {name: family.write(folder) for name, family in FAMILIES.items()}
        pixels = torch.randint(0, 256, (IMAGES * STEPS, 3, 64, 64), generator=torch.Generator().manual_seed(0))
        self.images = sslkit.open_images((pixels.byte(), torch.arange(len(pixels)) % 4))

    def settle(self, name: str, family: str) -> tuple[Config, Data]:
        """The settings of a run, with what is chosen for it, and its images."""
        options = signature(name)["objective"]
        method = {"name": name, "objective": {key: value for key, value in SMALL.items() if key in options}}
        size = {"batch_size": IMAGES, "image_size": FAMILIES[family].side, "epochs": 1}
        config = Config.from_mapping({"method": method, "init": self.words[family], "device": "cpu", **size})
        data = open_data(config, self.images)
        return Settled(config, choose(config, data)).config, data

    def fault(self, name: str, family: str) -> str:
        """The reason for which a run is refused; "" where it makes its steps. Raises RuntimeError for one of no use."""
        try:
            config, data = self.settle(name, family)
            method = build_method(config, data)
        except UserError as error:
            return re.sub(r" \(\w+\)", "", str(error).replace(FAMILIES[family].name, "NAME"))  # as of any of it
        if not train(method, data, config):
            raise RuntimeError(f"{name} on {family}: the steps left the network as it was")
        return ""

    def row(self, name: str) -> dict[str, str]:
        """`fault` of each family."""
        return {family: self.fault(name, family) for family in FAMILIES}


def train(method: Method, data: Data, config: Config) -> bool:
    """Make the steps of a run; returns whether the network has moved, and only after the first."""
    module = Pretraining(method, heads_first=1)
    optimizer = make_optimizer(method, config.optimizer, config.optimizer.lr, heads_first=module.heads_first)
    method.prepare(data.fixed, steps=STEPS)
    weights = [_weights(method)]
    for step, rows in enumerate(torch.arange(IMAGES * STEPS).split(IMAGES)):
        module.set_step(step)
        optimizer.zero_grad()
        module(data.train.__getitems__(rows.tolist()), step)["loss"].backward()
        module.before_step()
        optimizer.step()
        method.after_step((step + 1) / STEPS)
        weights.append(_weights(method))
    module.check(), module.check_weights()
    return torch.equal(*weights[:2]) and not torch.equal(*weights[1:])


def _weights(method: Method) -> Tensor:
    return torch.cat([p.detach().flatten() for p in method.backbone.parameters()])


def page(rows: Mapping[str, Mapping[str, str]]) -> str:
    """Markdown: the table, and below it each reason once. rows: `Trial.row` of each member."""
    reasons = list(dict.fromkeys(fault for row in rows.values() for fault in row.values() if fault))
    number = {"": RUNS} | {reason: f"[{row}]" for row, reason in enumerate(reasons, 1)}
    lines = [
        [f"`{name}`{' †' if name in HARM else ''}", *(number[fault] for fault in row.values())]
        for name, row in rows.items()
    ]
    notes = [
        *(f"{number[reason]} refused: {reason}" for reason in reasons),
        *(f"† `{name}` {harm}" for name, harm in HARM.items()),
        *(f"{name}: `{family.word}`, {family.side} px" for name, family in FAMILIES.items()),
    ]
    table = markdown([["method", *FAMILIES], *lines])
    return f"{ABOUT.format(runs=RUNS)}{table}\n\n" + "".join(f"* {note}\n" for note in notes)


def main() -> None:
    cli.parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder))
        write_text(PAGE, page({name: trial.row(name) for name in members()}))


if __name__ == "__main__":
    main()
