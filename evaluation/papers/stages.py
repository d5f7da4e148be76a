"""Experiments on networks in the midst of fine-tuning: the ranking by what is seen then, and their accuracies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from evaluation.features.zoo_members import load_member
from evaluation.papers.drawing import curves
from evaluation.papers.experiment import OPEN, Cell, Experiment, Lab, Numbers, Shown
from evaluation.papers.following import Stage, Subjects, follow, paper_subjects, percent, small_subjects
from evaluation.papers.names import by_row
from evaluation.papers.rankings import SMALL, TRUTH, Ranked
from evaluation.ranking import published
from evaluation.ranking.benchmark import Benchmark
from evaluation.ranking.scoring import score
from evaluation.results.statistics import over_seeds

ACCURACY, LOGME = "accuracy", "LogME"
BOTH = {LOGME: lambda stage: score("logme", stage.features("train"), stage.labels("train")), ACCURACY: Stage.accuracy}


def row(kind: str, share: float) -> str:
    """The row of what is measured after a share of the steps."""
    return f"{kind} after {percent(share)}"


@dataclass(frozen=True, kw_only=True)
class Stages(Ranked):
    """Ranks by LogME of the features, and by the accuracy, after shares of the steps of fine-tuning.

    metrics: `row` of each. shares: see `follow`; 0 has no accuracy, as the head starts at zero.
    """

    shares: tuple[float, ...]

    def _small(self, task: str, lab: Lab) -> Numbers:
        return self._followed(small_subjects(task, lab), lab)

    def _paper(self, task: str, opened: Benchmark, lab: Lab) -> Numbers:
        return self._followed(paper_subjects(self.benchmark, task, published.truth(self.benchmark)[task], lab), lab)

    def _followed(self, subjects: Subjects, lab: Lab) -> Numbers:
        numbers = {f"{TRUTH} | {model}": subjects.truth[model] for model in subjects.models}
        for name, one in subjects.models.items():
            model, setting = load_member(one), subjects.settings[name]
            found = follow(model, subjects.splits, setting, self.shares, _both, lab)
            told = {row(kind, share): value for share, values in found.items() for kind, value in values.items()}
            numbers |= {f"{key} | {name}": value for key, value in told.items() if key in self.metrics}
        return numbers


def _both(stage: Stage) -> dict[str, float]:
    return {kind: measure(stage) for kind, measure in BOTH.items()}


@dataclass(frozen=True, kw_only=True)
class Curves(Experiment):
    """Accuracies of all models during fine-tuning on one task. data: at each scale. shares: of the steps."""

    benchmark: str
    data: Mapping[str, str]
    shares: tuple[float, ...]
    seeds: tuple[int, ...] = (0, 1)

    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        models = SMALL if lab.scale == "small" else published.truth(self.benchmark)[self.data["paper"]]
        return {f"{model} | {seed}": partial(self._curve, model, seed, lab) for model in models for seed in self.seeds}

    def _curve(self, model: str, seed: int, lab: Lab) -> Numbers:
        task = self.data[lab.scale]
        subjects = small_subjects(task, lab) if lab.scale == "small" else paper_subjects(self.benchmark, task, {}, lab)
        loaded = load_member(subjects.models[model])
        setting = replace(subjects.settings[model], seed=seed)
        found = follow(loaded, subjects.splits, setting, self.shares, Stage.accuracy, lab)
        return {percent(share): value for share, value in found.items()}

    def shown(self, found: Mapping[str, Numbers]) -> Shown:
        models = dict.fromkeys(key.rpartition(" | ")[0] for key in found)
        rows = {model: self._cells(by_row(found, model)) for model in models}
        ends = {model: cells[percent(self.shares[-1])].measured.value for model, cells in rows.items()}
        low, high = min(ends, key=ends.get), max(ends, key=ends.get)
        said = f"at the end {100 * ends[low]:.1f} % ({low}) to {100 * ends[high]:.1f} % ({high})"
        return Shown(rows, OPEN, f"{said}; an illustration: the paper gives no number for it")

    def _cells(self, seeds: Mapping[int, Numbers]) -> dict[str, Cell]:
        columns = map(percent, self.shares)
        return {column: Cell(over_seeds([numbers[column] for numbers in seeds.values()])) for column in columns}

    def draw(self, found: Mapping[str, Numbers], path: Path, title: str) -> None:
        lines = {name: [cell.measured for cell in cells.values()] for name, cells in self.shown(found).rows.items()}
        curves(lines, [100 * share for share in self.shares], "share of the steps, %", path, title)
