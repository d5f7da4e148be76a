"""Rank the checkpoints of a zoo by their expected accuracy after fine-tuning on a task, in seconds.

python recipes/rank.py zoo=runs/zoo data=clipart
python recipes/rank.py zoo=runs/zoo data=clipart metrics=[knn,h_score_regularized,logme]
python recipes/rank.py zoo=[runs/zoo,efficientnet_lite0,timm:resnet18] data=[clipart,glyph_scripts,digits]
python recipes/rank.py zoo=runs/zoo data=path/to/images metrics='["ped(lam=0.3)+logme","nleep(covariance=diag)"]'
python recipes/rank.py zoo=runs/zoo data=clipart metrics=[leep,nce] source=clusters
python recipes/rank.py zoo=runs/zoo data=clipart metrics=[ped+logme] ped.reference=imagenet root=data
python recipes/rank.py zoo=runs/zoo data=boxes:clipart_boxes metrics=[knn,logme]
python recipes/rank.py benchmark=ped root=data checkpoints=path/to/checkpoints ped.reference=imagenet
"""

from dataclasses import dataclass, field
from typing import Any

from evaluation.judging.command_line import Metrics, Models, settings_of
from sslkit.cli.command import run_plain

from evaluation.features.extraction import CROPPED, READ
from evaluation.ranking.checks import BOOTSTRAP
from evaluation.ranking.references import CARD
from evaluation.ranking.source_heads import CLUSTER_COUNT, SOURCES
from sslkit.errors import UserError
from sslkit.options.settings import setting

MAX_IMAGES = 500  # for custom data sets: enough to rank models in seconds; a benchmark is computed as published


@dataclass
class Ped:
    reference: str = setting(
        CARD,
        "mean and std of PED: card (of the training images), task (of the task's images), a data set (its test images; "
        "imagenet: the published ones), or a file .npz, .json",
    )


@dataclass
class Task(Models):
    data: str | list[str] | None = setting(
        None,
        "embedded name, folder with class folders, .npz, shards:PATTERN, hf:PATH, published set, boxes:DETECTION_SET, "
        "masks:SEGMENTATION_SET, or a list",
    )


@dataclass
class Ranked:
    source: str | None = setting(
        None,
        "source classes of leep and nce: prototypes, labels or clusters of the pretraining data, or none; null: the "
        "prototypes or labels that training has kept, else the data's labels, else clusters",
        choices=SOURCES,
    )
    clusters: int = setting(CLUSTER_COUNT, "number of clusters", least=2, most=10**6)
    ped: Ped = field(default_factory=Ped)
    layers: str | None = setting(
        None, "metric, such as knn, by which the layers of each model are compared too; null: not"
    )
    truth: str | None = setting(None, "JSON file {model: accuracy after fine-tuning}, or {data: {model: accuracy}}")
    bootstrap: int = setting(
        BOOTSTRAP, "bootstrap samples of images for intervals and ties, at least 2; 0: none", least=0
    )
    max_images: int | str | None = setting(
        "auto",
        "images of each data set, the same number of each class; null: all; auto: 500, all for a benchmark",
        least=2,
        choices=("auto",),
    )
    split: str = setting("train", "split of the scored images")
    out: str = setting("runs/ranking", "folder of the tables and pictures")
    device: str = setting("cpu", "device of the metrics: cpu, cuda; features are extracted on a GPU if there is one")
    pictures: bool = setting(True, "scores with intervals, and with truth a scatter plot of each metric")
    benchmark: str | None = setting(None, "published benchmark, instead of zoo, data and truth: ped, itm")
    checkpoints: str = setting("checkpoints", "folder of the benchmark's checkpoint files")
    download: bool = setting(False, "allow timm to download those of the benchmark's weights that it has")


SHARED = ("image_size", "trust", *READ, *CROPPED, "on_error", "precision", "batch_size", "workers", "seed", "progress")
SETTINGS = settings_of(Task, Metrics, Ranked, shared=SHARED)


def main(config: dict[str, Any]) -> None:
    from evaluation.ranking.published_ranking import rank_published
    from evaluation.ranking.summary import rank_tasks

    config["reference"] = config.pop("ped", {"reference": CARD})["reference"]
    benchmark, checkpoints, download = (config.pop(name) for name in ("benchmark", "checkpoints", "download"))
    if config["max_images"] == "auto":
        config["max_images"] = MAX_IMAGES if benchmark is None else None
    if benchmark is None and download:
        raise UserError("download=true needs benchmark=...: other models are loaded by their names")
    if benchmark is None:
        rank_tasks(**config)
    else:
        if config.pop("layers", None) is not None:
            raise UserError("layers= is for custom data sets: leave it out of a benchmark")
        rank_published(benchmark, checkpoints, download=download, **config)


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
