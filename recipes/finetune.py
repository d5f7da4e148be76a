"""Train a model that predicts: tune a network on labelled images, or fit a linear classifier of its features.

python recipes/finetune.py checkpoint=runs/zoo/NAME data=path/to/images
python recipes/finetune.py checkpoint=efficientnet_lite0 data=path/to/images head=linear
python recipes/finetune.py checkpoint=runs/zoo/NAME data=table.csv columns.label=kind columns.group=patient budget=2h

The same command resumes a stopped run.
"""

from dataclasses import dataclass
from typing import Any

from evaluation.judging.command_line import settings_of
from sslkit.cli.command import run_plain

from evaluation.finetuning.finetune import SHARED
from evaluation.finetuning.options import Options
from sslkit.options.settings import setting


@dataclass
class Task:
    checkpoint: str | None = setting(
        None, "what it begins from: zoo entry, efficientnet_lite0, timm:NAME, timm:NAME:FILE, random:NAME"
    )
    data: str | None = setting(
        None,
        "labelled images: folder with class folders, table (.csv, .jsonl), embedded name, .npz, shards:PATTERN, "
        "hf:PATH, published set",
    )


SETTINGS = settings_of(Task, Options, shared=SHARED)


def main(config: dict[str, Any]) -> None:
    from evaluation.finetuning.output import run

    run(**config)


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
