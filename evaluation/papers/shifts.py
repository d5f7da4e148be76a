"""Experiments on the ranks that metrics give to models, against the ranks by fine-tuning."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from evaluation.papers.claims import judged
from evaluation.papers.drawing import compared_ranks, rows_of_columns
from evaluation.papers.experiment import Cell, Numbers, Shown
from evaluation.papers.rankings import MEAN, TRUTH, Ranked, pairs
from evaluation.results.statistics import over_seeds


@dataclass(frozen=True, kw_only=True)
class Shifts(Ranked):
    """For each data set the mean distance, in ranks, of a metric's rank from the rank by fine-tuning.

    groups: {name: models}, of which the signed distance is shown, over the models and data sets: above 0 where the
    metric ranks them too high. The claims are on MEAN, over the data sets.
    """

    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def shown(self, found: Mapping[str, Numbers]) -> Shown:
        shifts = {name: {task: shifted(name, numbers) for task, numbers in found.items()} for name in self.metrics}
        rows = {name: self._columns(by_task) for name, by_task in shifts.items()}
        distances = {
            f"{name} | {place}": {MEAN: float(np.mean(np.abs([*by_task[task].values()])))}
            for name, by_task in shifts.items()
            for place, task in enumerate(found)
        }
        return Shown(rows, *judged(self.claims, distances, {}, {MEAN: "ranks"}, over="data sets"))

    def _columns(self, by_task: Mapping[str, Mapping[str, float]]) -> dict[str, Cell]:
        """The cells of a metric. by_task: signed distance by model."""
        columns = {task: np.abs([*shift.values()]) for task, shift in by_task.items()}
        columns[MEAN] = [float(np.mean(distances)) for distances in columns.values()]
        for group, models in self.groups.items():
            columns[group] = [shift[model] for shift in by_task.values() for model in models if model in shift]
        return {name: Cell(over_seeds(values, unit="ranks")) for name, values in columns.items() if len(values)}

    def draw(self, found: Mapping[str, Numbers], path: Path, title: str) -> None:
        if self.groups:
            rows_of_columns(self.shown(found).rows, path, title)
        else:
            compared_ranks({task: self._ranks(numbers) for task, numbers in found.items()}, path, title)

    def _ranks(self, numbers: Numbers) -> dict[str, dict[str, float]]:
        """The ranks of the models by fine-tuning and by each metric; 1 is best."""
        truth = _ranks(pairs(TRUTH, numbers)[0])
        models = _models(numbers)
        by_metric = {name: _ranks(pairs(name, numbers)[1]) for name in self.metrics}
        return {name: dict(zip(models, ranks, strict=True)) for name, ranks in {TRUTH: truth, **by_metric}.items()}


def shifted(name: str, numbers: Numbers) -> dict[str, float]:
    """The rank by fine-tuning minus that by a metric, for each model."""
    truth, scores = pairs(name, numbers)
    return dict(zip(_models(numbers), (_ranks(truth) - _ranks(scores)).tolist(), strict=True))


def _ranks(values: list[float]) -> np.ndarray:
    return rankdata(-np.asarray(values))


def _models(numbers: Numbers) -> list[str]:
    return [key.partition(" | ")[2] for key in numbers if key.startswith(f"{TRUTH} | ")]
