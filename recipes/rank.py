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

from dataclasses import dataclass, fields
from typing import Any

from evaluation.judging.command_line import settings_of
from sslkit.cli.command import run_plain

from evaluation.ranking.command_line import Metrics, Models
from evaluation.ranking.inputs.candidates import SHARED, Options
from evaluation.ranking.output import Output, Published
from sslkit.errors import UserError
from sslkit.options.settings import setting


@dataclass
class Task(Models):
    data: str | list[str] | None = setting(
        None,
        "embedded name, folder with class folders, .npz, shards:PATTERN, hf:PATH, published set, boxes:DETECTION_SET, "
        "masks:SEGMENTATION_SET, or a list",
    )


OF_BENCHMARK = {field.name for field in fields(Published)}
SETTINGS = settings_of(Task, Metrics, Options, Output, Published, shared=SHARED)


def main(config: dict[str, Any]) -> None:
    from evaluation.ranking.published_ranking import rank_published
    from evaluation.ranking.summary import rank_tasks

    if config["benchmark"] is not None:
        rank_published(**config)
        return
    if config["download"]:
        raise UserError("download=true needs benchmark=...: other models are loaded by their names")
    rank_tasks(**{name: value for name, value in config.items() if name not in OF_BENCHMARK})


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
