"""Experiments that show accuracies after fine-tuning: models as rows, data sets as columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from evaluation.papers.drawing import rows_of_columns
from evaluation.papers.experiment import OPEN, Cell, Experiment, Lab, Numbers, Shown
from evaluation.papers.names import by_row
from evaluation.papers.rankings import small_truth, small_zoo
from evaluation.ranking import published
from evaluation.ranking.benchmark import open_benchmark
from evaluation.ranking.ground_truth import ground_truth
from evaluation.results.statistics import over_seeds

NO_CLAIM = "the table has no finding of its own; the rankings are compared with it"


@dataclass(frozen=True, kw_only=True)
class Accuracies(Experiment):
    """The ground truth of the rankings, seed by seed.

    benchmark: of `evaluation.published`, whose models and numbers are those of scale=paper. grid: of `ground_truth` at
    scale=paper.
    """

    benchmark: str
    grid: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] = ("digits", "clipart", "fashion_mnist_few")

    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        if lab.scale == "small":
            return {task: partial(self._small, task, lab) for task in self.tasks}
        opened = open_benchmark(self.benchmark, checkpoints=lab.root / "checkpoints", root=lab.root)
        return {task: partial(self._paper, task, opened.zoo, lab) for task in opened.datasets}

    def _small(self, task: str, lab: Lab) -> Numbers:
        zoo = small_zoo(lab)
        return _by_seed({name: small_truth(zoo, task, lab).results[task][name] for name in zoo})

    def _paper(self, task: str, zoo: Mapping[str, str], lab: Lab) -> Numbers:
        how = {"root": lab.root, "device": lab.runtime.device, "progress": lab.runtime.progress}
        found = ground_truth(zoo, task, out=lab.zoo.with_name("truth-paper"), **how, **self.grid)
        return _by_seed(found.results[task])

    def shown(self, found: Mapping[str, Numbers]) -> Shown:
        told = published.truth(self.benchmark)
        models = dict.fromkeys(key.rpartition(" | ")[0] for numbers in found.values() for key in numbers)
        rows = {
            model: {task: _cell(model, numbers, told.get(task, {})) for task, numbers in found.items()}
            for model in models
        }
        return Shown(rows, OPEN, NO_CLAIM)

    def draw(self, found: Mapping[str, Numbers], path: Path, title: str) -> None:
        rows_of_columns(self.shown(found).rows, path, title)


def _by_seed(results: Mapping[str, Mapping[str, Any]]) -> Numbers:
    """The accuracies "MODEL | PLACE OF THE SEED" of records of `ground_truth`."""
    return {
        f"{name} | {place}": value for name, record in results.items() for place, value in enumerate(record["values"])
    }


def _cell(model: str, numbers: Numbers, published_of: Mapping[str, float]) -> Cell:
    return Cell(over_seeds([*by_row(numbers, model).values()]), published_of.get(model))
