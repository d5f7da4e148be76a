"""Choose a model of a zoo for a task on a budget: rank by metrics, fine-tune the first few, drop half in each round.

python recipes/choose.py zoo=runs/zoo data=clipart
python recipes/choose.py zoo=[runs/zoo,efficientnet_lite0] data=path/to/images first=4 steps=100 image_size=64

The same command resumes a stopped run.
"""

from dataclasses import dataclass
from typing import Any

from evaluation.judging.command_line import settings_of
from sslkit.cli.command import run_plain

from evaluation.ranking.choice.halving import Options
from evaluation.ranking.command_line import Metrics, Models
from evaluation.ranking.inputs.runs import SHARED
from sslkit.options.settings import setting


@dataclass
class Task(Models):
    data: str | None = setting(
        None, "embedded name, folder with class folders, .npz, shards:PATTERN, hf:PATH, published set"
    )
    out: str = setting("runs/choice", "folder of the outcome and of the finished runs")
    pictures: bool = setting(True, "accuracy of every model by round")


SETTINGS = settings_of(Task, Metrics, Options, shared=SHARED)


def main(config: dict[str, Any]) -> None:
    from evaluation.ranking.choice.halving_output import choose

    choose(**config)


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
