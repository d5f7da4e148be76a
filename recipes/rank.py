"""Rank the checkpoints of a zoo by their expected accuracy after fine-tuning on a task, in seconds.

python recipes/rank.py zoo=runs/zoo data=clipart
python recipes/rank.py zoo=runs/zoo data=clipart metrics=[knn,h_score_regularized,logme]
python recipes/rank.py zoo=[runs/zoo,efficientnet_lite0,timm:resnet18] data=[clipart,glyph_scripts,digits]
python recipes/rank.py zoo=runs/zoo data=path/to/images metrics='["ped(lam=0.3)+logme","nleep(covariance=diag)"]'
python recipes/rank.py zoo=runs/zoo data=clipart metrics=[leep,nce] source=clusters
python recipes/rank.py zoo=runs/zoo data=clipart metrics=[ped+logme] reference=imagenet root=data
python recipes/rank.py zoo=runs/zoo data=boxes:clipart_boxes metrics=[knn,logme]
python recipes/rank.py benchmark=ped root=data checkpoints=path/to/checkpoints reference=imagenet
"""

from dataclasses import dataclass
from typing import Any

from evaluation.judging.command_line import Metrics, Models, settings_of
from sslkit.cli.command import run_plain

from evaluation.ranking.inputs.candidates import SHARED, Options
from sslkit.errors import UserError
from sslkit.options.settings import setting


@dataclass
class Task(Models):
    data: str | list[str] | None = setting(
        None,
        "embedded name, folder with class folders, .npz, shards:PATTERN, hf:PATH, published set, boxes:DETECTION_SET, "
        "masks:SEGMENTATION_SET, or a list",
    )


@dataclass
class Made:
    layers: str | None = setting(
        None, "metric, such as knn, by which the layers of each model are compared too; null: not"
    )
    truth: str | None = setting(None, "JSON file {model: accuracy after fine-tuning}, or {data: {model: accuracy}}")
    out: str = setting("runs/ranking", "folder of the tables and pictures")
    pictures: bool = setting(True, "scores with intervals, and with truth a scatter plot of each metric")
    benchmark: str | None = setting(None, "published benchmark, instead of zoo, data and truth: ped, itm")
    checkpoints: str = setting("checkpoints", "folder of the benchmark's checkpoint files")
    download: bool = setting(False, "allow timm to download those of the benchmark's weights that it has")


SETTINGS = settings_of(Task, Metrics, Options, Made, shared=SHARED)


def main(config: dict[str, Any]) -> None:
    from evaluation.ranking.published_ranking import rank_published
    from evaluation.ranking.summary import rank_tasks

    benchmark, checkpoints, download = (config.pop(name) for name in ("benchmark", "checkpoints", "download"))
    if benchmark is None and download:
        raise UserError("download=true needs benchmark=...: other models are loaded by their names")
    if benchmark is None:
        rank_tasks(**config)
    else:
        rank_published(benchmark, checkpoints, download=download, **config)


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
