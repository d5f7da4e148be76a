"""Judge backbones: every protocol on features that are extracted once, each number with its interval.

python recipes/evaluate.py checkpoint=runs/zoo/NAME                    (embedded clothes, clip art and letters)
python recipes/evaluate.py checkpoint=[runs/zoo/A,runs/zoo/B]          (both, and what differs between them)
python recipes/evaluate.py checkpoint=efficientnet_lite0 data=path/to/images protocols=[linear,knn]
python recipes/evaluate.py zoo=runs/zoo data=pets root=data
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads stall a shared machine

from dataclasses import asdict, dataclass
from typing import Any

from command import run_plain

from evaluation import protocols
from sslkit import members
from sslkit.training.config import setting


@dataclass
class Settings:
    checkpoint: Any = setting(None, "zoo entry, timm:NAME, timm:NAME:FILE, random:NAME, efficientnet_lite0, or a list")
    zoo: str | None = setting(None, "folder of zoo entries, instead of checkpoint")
    data: Any = setting(None, "embedded name, folder, .npz, published set, or a list; null: the embedded suite")
    protocols: Any = setting(None, f"of {', '.join(protocols.names())}; null: linear, knn, crowding, few_shot")
    root: str = setting("data", "folder of the published data sets")
    cache: str = setting("runs/cache", "folder of the features")
    out: str = setting("runs/evaluation", "folder of the results of what is no zoo entry")
    seed: int = setting(0, "of every draw: episodes, held-out images, bootstrap")
    image_size: int | None = setting(None, "pixels; null: the model's own")
    precision: str = setting("float32", "of the network: float32 or bfloat16; stored are float32")
    batch_size: int = setting(256, "images a forward pass")
    device: str = setting("auto", "auto, cpu, cuda")
    workers: Any = setting("auto", "processes that decode")


def options() -> dict[str, dict[str, Any]]:
    return {name: members.options(protocols.find(name)) for name in protocols.names()}


def main(config: dict[str, Any]) -> None:
    from evaluation.summary import judge

    plain = {name: config.pop(name) for name in asdict(Settings())}
    judge(**plain, options=config)


if __name__ == "__main__":
    run_plain(main, Settings(), __doc__, options())
