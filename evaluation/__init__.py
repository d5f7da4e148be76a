"""Protocols and transferability metrics for sslkit's backbones. It imports sslkit; sslkit never imports it.

    train, test = (evaluation.extract("runs/zoo/NAME", "fashion_mnist", split) for split in ("train", "test"))
    evaluation.linear_probe(train, test).value

Everything is imported when it is first used.
"""

import importlib
from typing import Any

_WHERE = {
    "Comparison": ("evaluation.results.comparison", "Comparison"),
    "EpisodeTable": ("evaluation.learners.episodes", "EpisodeTable"),
    "Estimate": ("evaluation.results.statistics", "Estimate"),
    "Features": ("evaluation.features", "Features"),
    "Result": ("evaluation.results.result", "Result"),
    "action_recognition": ("evaluation.protocols.action", "action"),
    "compare": ("evaluation.results.comparison", "compare"),
    "compare_all": ("evaluation.results.comparison", "compare_all"),
    "crowding": ("evaluation.protocols.crowding", "crowding"),
    "draw_episodes": ("evaluation.learners.episodes", "draw_episodes"),
    "evaluate": ("evaluation.judging.run", "evaluate"),
    "extract": ("evaluation.features.extraction", "extract"),
    "few_shot": ("evaluation.protocols.few_shot", "few_shot"),
    "fine_tune": ("evaluation.protocols.fine_tune", "fine_tune"),
    "fit_logistic": ("evaluation.learners.logistic", "fit_logistic"),
    "instance_segmentation": ("evaluation.protocols.segmentation", "segmentation"),
    "knn": ("evaluation.protocols.knn", "knn"),
    "lidar": ("evaluation.protocols.lidar", "lidar"),
    "linear_on_views": ("evaluation.protocols.linear_aug", "linear_on_views"),
    "linear_probe": ("evaluation.protocols.linear", "linear_probe"),
    "load_model": ("evaluation.features.models", "load_model"),
    "object_detection": ("evaluation.protocols.detection", "detection"),
    "open_split": ("evaluation.datasets", "open_split"),
    "semi_supervised": ("evaluation.protocols.semi_supervised", "semi_supervised"),
    "MetricResult": ("evaluation.ranking.scoring", "MetricResult"),
    "Ranking": ("evaluation.ranking.rank", "Ranking"),
    "evaluate_metric": ("evaluation.ranking.scoring", "evaluate_metric"),
    "metrics": ("evaluation.ranking.scoring", "metrics"),
    "rank": ("evaluation.ranking.rank", "rank"),
    "score": ("evaluation.ranking.scoring", "score"),
    "weighted_tau": ("evaluation.ranking.agreement", "weighted_tau"),
    "table": ("evaluation.results.tables", "table"),
}
_MODULES = (
    "agreement",
    "comparison",
    "datasets",
    "detection",
    "episodes",
    "extraction",
    "features",
    "ped_plots",
    "plots",
    "protocols",
    "published",
    "report",
    "result",
    "statistics",
    "store",
    "subsets",
    "tables",
    "transferability",
)
__all__ = [*_WHERE, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        module, attribute = _WHERE[name]
        return getattr(importlib.import_module(module), attribute)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
