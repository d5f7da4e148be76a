"""Choose a model of a zoo for a task on a budget: rank by metrics, fine-tune the first few, drop half in each round.

python recipes/choose.py zoo=runs/zoo data=clipart
python recipes/choose.py zoo=[runs/zoo,efficientnet_lite0] data=path/to/images first=4 steps=100 image_size=64

The same command resumes a stopped run.
"""

from dataclasses import dataclass
from typing import Any

from evaluation.judging.command_line import DECLARED
from sslkit.cli.command import run_plain

from evaluation.ranking.scoring import metrics
from sslkit.options.settings import MOST_SEED, setting


@dataclass
class Settings:
    zoo: str | list[str] | None = setting(
        None, "folder of zoo entries, or a list: such folders, entries, timm:NAME, efficientnet_lite0"
    )
    data: str | None = setting(
        None, "embedded name, folder with class folders, .npz, shards:PATTERN, hf:PATH, published set"
    )
    metrics: str | list[str] | None = setting(
        None,
        f"some of {', '.join(metrics())}; options in brackets; null, to begin with: knn; logme for several "
        "labels or numbers; recipes/list.py metrics says what each is",
    )
    first: int = setting(8, "models that are fine-tuned, the first by the metrics", least=2, most=10**6)
    steps: int = setting(200, "steps of the last round; each round before it has half of the next", least=1, most=10**9)
    lr: float | list[float] = setting(
        (3e-2, 1e-2, 3e-3, 1e-3), "learning rates of the first round; each round keeps the better half", above=0
    )
    seeds: int | list[int] = setting((0, 1, 2), "of the last round; the others have the first", least=0, most=MOST_SEED)
    sure: float = setting(0.95, "stop once a model is the best with this probability; 1: never", least=0.5, most=1)
    optimizer: str = setting("adamw", "adamw or sgd", choices=("adamw", "sgd"))
    weight_decay: float = setting(0.01, "of all weights", least=0)
    batch_size: int = setting(32, "images per step", least=1, most=10**9)
    crop: list[float] = setting(
        (0.5, 1.0), "smallest and largest share of the image's area in a random crop", above=0, most=1
    )
    mirror: bool | None = DECLARED["mirror"]
    max_images: int | None = setting(
        2000, "training images of the task, the same number of each class; null: all", least=2, most=10**9
    )
    rank_images: int | None = setting(500, "of these for the metrics; null: all", least=2, most=10**9)
    image_size: int | None = setting(None, "pixels; null: the model's own", least=8, most=4096)
    precision: str = setting("float32", "network precision: float32 or bfloat16", choices=("float32", "bfloat16"))
    root: str = setting("data", "folder of the published data sets")
    range: list[float] | str | None = DECLARED["range"]
    opacity: bool | None = DECLARED["opacity"]
    fill: float | str = DECLARED["fill"]
    trust: str | list[str] | None = DECLARED["trust"]
    cache: str = setting("runs/cache", "folder of the features")
    out: str = setting("runs/choice", "folder of the outcome and of the finished runs")
    device: str = setting("auto", "auto, cpu, cuda")
    workers: int = setting(1, "processes for the runs of a model, which share the threads", least=1, most=256)
    progress: bool = setting(True, "progress bars on a terminal")
    pictures: bool = setting(True, "accuracy of every model by round")


def main(config: dict[str, Any]) -> None:
    from evaluation.ranking.halving_output import choose

    choose(**config)


if __name__ == "__main__":
    run_plain(main, Settings(), __doc__, {})
