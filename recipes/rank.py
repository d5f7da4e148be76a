"""Rank a zoo for a task: which checkpoint will fine-tune best, in seconds, before any is fine-tuned.

python recipes/rank.py zoo=runs/zoo data=clipart metrics=[ped+logme,itm,logme,leep]
python recipes/rank.py zoo=[runs/zoo,efficientnet_lite0,timm:resnet18] data=[clipart,glyph_scripts,digits]
python recipes/rank.py zoo=runs/zoo data=path/to/images metrics='["ped(lam=0.3)+logme","nleep(covariance=diag)"]'
python recipes/rank.py benchmark=ped root=data checkpoints=path/to/checkpoints
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads stall a shared machine

from dataclasses import dataclass
from typing import Any

from command import run_plain

from evaluation.ranking.checks import BOOTSTRAP, METRICS
from evaluation.ranking.scoring import metrics
from sslkit.errors import UserError
from sslkit.settings import MOST_SEED, setting

MAX_IMAGES = 500  # of a data set of one's own: enough to order models in seconds; a benchmark is computed as published


@dataclass
class Settings:
    zoo: str | list[str] | None = setting(
        None, "folder of zoo entries, or a list: such folders, entries, timm:NAME, efficientnet_lite0"
    )
    trust: str | list[str] | None = setting(
        None, "package.module:function, or a list: own code that a card may name and that is run"
    )
    data: str | list[str] | None = setting(
        None, "embedded name, folder with class folders, .npz, published set, or a list"
    )
    metrics: str | list[str] = setting(METRICS, f"of {', '.join(metrics())}; options in brackets")
    truth: str | None = setting(None, "JSON file {model: accuracy after fine-tuning}, or one such for each data set")
    bootstrap: int = setting(
        BOOTSTRAP, "redrawn sets of images behind intervals and ties, at least 2; 0: none", least=0
    )
    max_images: int | str | None = setting(
        "auto",
        "images of each data set, the same number of each class; null: all; auto: 500, of a benchmark all",
        least=2,
        choices=("auto",),
    )
    image_size: int | None = setting(
        None, "pixels, for models that are no zoo entries; null: their own", least=1, most=4096
    )
    split: str = setting("train", "whose images are scored")
    seed: int = setting(0, "of every draw", least=0, most=MOST_SEED)
    root: str = setting("data", "folder of the published data sets")
    cache: str = setting("runs/cache", "folder of the features")
    out: str = setting("runs/ranking", "folder of the tables and pictures")
    precision: str = setting("float32", "of the networks: float32 or bfloat16", choices=("float32", "bfloat16"))
    batch_size: int | None = setting(
        None, "images a forward pass; null: 256 on a GPU, fewer large ones on the CPU", least=1
    )
    device: str = setting("cpu", "where metrics are computed: cpu, cuda")
    workers: int | str = setting("auto", "processes that decode", least=0, most=256, choices=("auto",))
    pictures: bool = setting(True, "bars with intervals, and with truth a scatter of each metric")
    benchmark: str | None = setting(None, "a published one, instead of zoo, data and truth: ped, itm")
    checkpoints: str = setting("checkpoints", "folder of the benchmark's checkpoint files")
    download: bool = setting(False, "let timm get those of the benchmark's weights that it knows of")


def main(config: dict[str, Any]) -> None:
    from evaluation.ranking.published_ranking import rank_published
    from evaluation.ranking.summary import rank_tasks

    benchmark, checkpoints, download = (config.pop(name) for name in ("benchmark", "checkpoints", "download"))
    if config["max_images"] == "auto":
        config["max_images"] = MAX_IMAGES if benchmark is None else None
    if benchmark is None and download:
        raise UserError("download=true is for the weights of a benchmark=: other models are found by their names")
    if benchmark is None:
        rank_tasks(**config)
    else:
        rank_published(benchmark, checkpoints, download=download, **config)


if __name__ == "__main__":
    run_plain(main, Settings(), __doc__, {})
