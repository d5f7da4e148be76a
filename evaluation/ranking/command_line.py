"""Shared by the ranking command lines: the models and data that they rank, and the metrics."""

from dataclasses import dataclass

from evaluation.ranking.scoring import metrics
from sslkit.options.settings import setting


@dataclass
class Models:
    """Models and data of a ranking."""

    zoo: str | list[str] | None = setting(
        None, "folder of zoo entries, or a list: such folders, entries, timm:NAME, efficientnet_lite0"
    )
    data: str | list[str] | None = setting(
        None, "embedded name, folder with class folders, .npz, shards:PATTERN, hf:PATH, published set, or a list"
    )


@dataclass
class Metrics:
    metrics: str | list[str] | None = setting(
        None,
        f"some of {', '.join(metrics())}, or package.module:score of your own; options in brackets; null, to begin "
        "with: knn; logme for several labels or numbers; recipes/list.py metrics says what each is",
    )
