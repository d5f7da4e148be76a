"""The options of what a ranking on a command line is compared with, and writes."""

from dataclasses import dataclass

from sslkit.options.settings import setting


@dataclass(frozen=True, kw_only=True)
class Output:
    """Beside the ranking of each task."""

    layers: str | None = setting(
        None, "metric, such as knn, by which the layers of each model are compared too; null: not"
    )
    truth: str | None = setting(None, "JSON file {model: accuracy after fine-tuning}, or {data: {model: accuracy}}")
    out: str = setting("runs/ranking", "folder of the tables and pictures")
    pictures: bool = setting(True, "scores with intervals, and with truth a scatter plot of each metric")


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published benchmark."""

    benchmark: str | None = setting(None, "published benchmark, instead of zoo, data and truth: ped, itm")
    checkpoints: str = setting("checkpoints", "folder of the benchmark's checkpoint files")
    download: bool = setting(False, "allow timm to download those of the benchmark's weights that it has")
