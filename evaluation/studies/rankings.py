"""Studies that rank models: metrics as rows, data sets as columns, beside the accuracies after fine-tuning."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.stats import rankdata

from evaluation.datasets import Reading
from evaluation.ranking.inputs.benchmark import with_one_label
from evaluation.ranking.rank import rank
from evaluation.ranking.truth import published
from evaluation.ranking.truth.agreement import agreement
from evaluation.ranking.truth.ground_truth import ground_truth
from evaluation.results.statistics import Estimate, over_seeds
from evaluation.studies.claims import OPEN, Cell, Claim, Numbers, Summary, by_row, evaluate_claims
from evaluation.studies.drawing import draw_ranks
from evaluation.studies.study import Lab, Study
from evaluation.studies.subjects import TASKS, TUNED, Subjects
from sslkit.terminal import say

TRUTH, MEAN = "fine-tuning", "mean"
NO_CLAIM = "the table has no finding of its own; the rankings are compared with it"


@dataclass(frozen=True, kw_only=True)
class Ranked(Study):
    """Metrics over a zoo, on several data sets; the agreement of each with fine-tuning.

    metrics: of `evaluation.metrics()` with their options, by their names in the table. benchmark: of
    `evaluation.published`, for scale=paper. tasks: data sets of scale=small. published: the paper's weighted tau by
    metric and data set. measure: of `evaluation.agreement`, between scores and accuracies.
    """

    metrics: Mapping[str, str]
    benchmark: str
    claims: tuple[Claim, ...]
    tasks: tuple[str, ...] = TASKS
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    measure: str = "weighted tau (Vigna)"
    unit: ClassVar[str] = ""

    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        subjects = Subjects(self.benchmark, lab)
        return {task: partial(self.numbers, task, subjects) for task in subjects.tasks(self.tasks)}

    def numbers(self, task: str, subjects: Subjects) -> Numbers:
        """The accuracies "fine-tuning | MODEL", and the scores "METRIC | MODEL"."""
        zoo, truth, lab = subjects.zoo, subjects.truth(task), subjects.lab
        data, how = task, {"max_images": TUNED["max_images"]}
        if not subjects.is_small:
            zoo, how = {model: zoo[model] for model in truth}, {"max_images": None, "root": lab.root}
            data, note = with_one_label(Reading(root=lab.root).open(task, "train"))
            if note:
                say.line(f"note      {note}")
        ranking = rank(zoo, data, list(self.metrics.values()), bootstrap=0, cache=lab.runtime.cache, **how)
        numbers = {f"{TRUTH} | {model}": truth[model] for model in ranking.models}
        for name, scores in zip(self.metrics, ranking.scores.T, strict=True):
            numbers |= {f"{name} | {model}": score for model, score in zip(ranking.models, scores, strict=True)}
        return numbers

    def summarize(self, by_job: Mapping[str, Numbers]) -> Summary:
        means = {name: {**row, MEAN: sum(row.values()) / len(row)} for name, row in self.published.items()}
        rows = {name: self.cells(name, by_job, means.get(name, {})) for name in self.metrics}
        by_task = {
            f"{name} | {number}": {MEAN: cells[task].measured.value}
            for name, cells in rows.items()
            for number, task in enumerate(by_job)
        }
        return Summary(rows, *evaluate_claims(self.claims, by_task, means, {MEAN: self.unit}, over="data sets"))

    def cells(self, name: str, by_job: Mapping[str, Numbers], published: Mapping[str, float]) -> dict[str, Cell]:
        """The cells of a metric: each data set, and their mean."""
        measured = {task: self._agreement(name, numbers) for task, numbers in by_job.items()}
        measured[MEAN] = over_seeds([estimate.value for estimate in measured.values()], unit="")
        return {column: Cell(estimate, published.get(column)) for column, estimate in measured.items()}

    def _agreement(self, name: str, numbers: Numbers) -> Estimate:
        """With its 95 % interval over other models (bootstrap)."""
        (measured,) = agreement(*pairs(name, numbers), measures=[self.measure])
        return Estimate(measured.value, measured.interval, "bootstrap over models", measured.n, "")


@dataclass(frozen=True, kw_only=True)
class Shifts(Ranked):
    """For each data set the mean distance, in ranks, of a metric's rank from the rank by fine-tuning.

    groups: {name: models}, of which the signed distance is shown, over the models and data sets: above 0 where the
    metric ranks them too high. The claims are on MEAN, over the data sets.
    """

    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unit: ClassVar[str] = "ranks"

    def cells(self, name: str, by_job: Mapping[str, Numbers], published: Mapping[str, float]) -> dict[str, Cell]:
        """The cells of a metric: each data set, their mean, and each group."""
        shifts = {task: rank_shifts(name, numbers) for task, numbers in by_job.items()}
        columns = {task: np.abs([*shift.values()]) for task, shift in shifts.items()}
        columns[MEAN] = [float(np.mean(distances)) for distances in columns.values()]
        for group, models in self.groups.items():
            columns[group] = [shift[model] for shift in shifts.values() for model in models if model in shift]
        return {column: Cell(over_seeds(values, unit=self.unit)) for column, values in columns.items() if len(values)}

    def draw(self, by_job: Mapping[str, Numbers], path: Path, title: str) -> None:
        if self.groups:
            super().draw(by_job, path, title)
        else:
            names = (TRUTH, *self.metrics)
            ranks = {task: {name: _ranks(name, numbers) for name in names} for task, numbers in by_job.items()}
            draw_ranks(ranks, path, title)


@dataclass(frozen=True, kw_only=True)
class Accuracies(Study):
    """The ground truth of the rankings, seed by seed: models as rows, data sets as columns.

    benchmark: of `evaluation.published`, whose models and numbers are those of scale=paper. grid: of `ground_truth` at
    scale=paper.
    """

    benchmark: str
    grid: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] = TASKS

    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        subjects = Subjects(self.benchmark, lab)
        return {task: partial(self._measure, task, subjects) for task in subjects.tasks(self.tasks)}

    def _measure(self, task: str, subjects: Subjects) -> Numbers:
        """The accuracies "MODEL | PLACE OF THE SEED"."""
        if subjects.is_small:
            truth = subjects.small_truth(task)
        else:
            lab = subjects.lab
            how = {"root": lab.root, "device": lab.runtime.device, "progress": lab.runtime.progress}
            truth = ground_truth(subjects.zoo, task, out=lab.zoo.with_name("truth-paper"), **how, **self.grid)
        return {
            f"{model} | {seed_number}": value
            for model in subjects.zoo
            for seed_number, value in enumerate(truth.results[task][model]["values"])
        }

    def summarize(self, by_job: Mapping[str, Numbers]) -> Summary:
        truth = published.truth(self.benchmark)
        models = dict.fromkeys(key.rpartition(" | ")[0] for numbers in by_job.values() for key in numbers)
        rows = {
            model: {
                task: Cell(over_seeds([*by_row(numbers, model).values()]), truth.get(task, {}).get(model))
                for task, numbers in by_job.items()
            }
            for model in models
        }
        return Summary(rows, OPEN, NO_CLAIM)


def pairs(name: str, numbers: Numbers) -> tuple[list[float], list[float]]:
    """Accuracies after fine-tuning and scores, model by model."""
    models = _models(numbers)
    return [numbers[f"{TRUTH} | {model}"] for model in models], [numbers[f"{name} | {model}"] for model in models]


def rank_shifts(name: str, numbers: Numbers) -> dict[str, float]:
    """The rank by fine-tuning minus that by a metric, for each model."""
    truth, ranks = _ranks(TRUTH, numbers), _ranks(name, numbers)
    return {model: truth[model] - ranks[model] for model in truth}


def _ranks(name: str, numbers: Numbers) -> dict[str, float]:
    """The rank of each model by a metric, or by fine-tuning; 1 is best."""
    models = _models(numbers)
    return dict(zip(models, rankdata([-numbers[f"{name} | {model}"] for model in models]).tolist(), strict=True))


def _models(numbers: Numbers) -> list[str]:
    return [key.partition(" | ")[2] for key in numbers if key.startswith(f"{TRUTH} | ")]
