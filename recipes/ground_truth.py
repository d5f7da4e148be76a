"""Measure the ground truth of rankings: the accuracy of every model of a zoo on every task after fine-tuning.

python recipes/ground_truth.py zoo=runs/zoo data=[clipart,digits]
python recipes/ground_truth.py zoo=[runs/zoo,efficientnet_lite0,random:narrow_resnet] data=clipart image_size=64
python recipes/rank.py zoo=[runs/zoo,efficientnet_lite0] data=[clipart,digits] truth=runs/truth/truth.json

The same command resumes a stopped run. If a model fails, the others are still measured; the exit code is then 1.
"""

import sys
from dataclasses import dataclass
from typing import Any

from evaluation.judging.command_line import DECLARED
from sslkit.cli.command import run_plain

from sslkit.options.settings import MOST_SEED, setting


@dataclass
class Settings:
    zoo: str | list[str] | None = setting(
        None, "folder of zoo entries, or a list: such folders, entries, timm:NAME, efficientnet_lite0"
    )
    data: str | list[str] | None = setting(
        None, "embedded name, folder with class folders, .npz, shards:PATTERN, hf:PATH, published set, or a list"
    )
    out: str = setting("runs/truth", "folder of truth.json, truth_details.json and the finished runs")
    max_images: int | None = setting(
        2000, "training images of each task, the same number of each class; null: all", least=2, most=10**9
    )
    max_test_images: int | None = setting(1000, "the same for test images; null: all", least=1, most=10**9)
    image_size: int | None = setting(None, "pixels; null: the model's own", least=8, most=4096)
    lr: float | list[float] = setting(
        (3e-2, 1e-2, 3e-3, 1e-3, 3e-4), "grid of learning rates, selected on a held-out fifth of train", above=0
    )
    extend: bool = setting(True, "while the selected rate is an end of the grid, try the next one beyond it")
    folds: int = setting(
        1, "fifths of train, held out one after the other to select the rate; 5 for few images", least=1, most=5
    )
    weight_decay: float | list[float] = setting((0.01,), "likewise", least=0)
    optimizer: str = setting("adamw", "adamw or sgd", choices=("adamw", "sgd"))
    steps: int = setting(200, "steps of each run", least=1, most=10**9)
    batch_size: int = setting(32, "images per step", least=1, most=10**9)
    seeds: int | list[int] = setting(
        (0, 1, 2), "random seeds of the runs with the selected rate, on all training images", least=0, most=MOST_SEED
    )
    closest: int = setting(
        0, "number of models of each task, the best ones, that are trained with more_seeds too", least=0, most=10**9
    )
    more_seeds: int | list[int] = setting((3, 4), "the further seeds of the closest models", least=0, most=MOST_SEED)
    crop: list[float] = setting(
        (0.5, 1.0), "smallest and largest share of the image's area in a random crop", above=0, most=1
    )
    mirror: bool | None = DECLARED["mirror"]
    precision: str = setting("float32", "network precision: float32 or bfloat16", choices=("float32", "bfloat16"))
    root: str = setting("data", "folder of the published data sets")
    cache: str = setting("runs/cache", "folder of the digests of files")
    range: list[float] | str | None = DECLARED["range"]
    opacity: bool | None = DECLARED["opacity"]
    fill: float | str = DECLARED["fill"]
    trust: str | list[str] | None = DECLARED["trust"]
    device: str = setting("auto", "auto, cpu, cuda")
    workers: int = setting(1, "processes for the runs of a model, which share the threads", least=1, most=256)
    progress: bool = setting(True, "progress bars on a terminal")


def main(config: dict[str, Any]) -> None:
    from evaluation.ranking.ground_truth import TRUTH, ground_truth
    from sslkit.errors import UserError
    from sslkit.terminal import say
    from sslkit.terminal.say import printable

    if not config["zoo"]:
        raise UserError("give the models to fine-tune: zoo=runs/zoo, or zoo=[runs/zoo,efficientnet_lite0]")
    found = ground_truth(**config, say=say.line)
    for task, accuracies in found.truth.items():
        best = max(accuracies, key=accuracies.get)
        say.line(f"best      {task}: {best} ({100 * accuracies[best]:.1f} %), of {len(accuracies)} models")
    say.line(f"written   {config['out']}/{TRUTH}")
    if found.failures:
        print(f"{len(found.failures)} failed, all others are measured; the same command retries them:", file=sys.stderr)
        for failure in found.failures:
            print(f"  {printable(str(failure), keep='')}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    run_plain(main, Settings(), __doc__, {})
