"""Studies of networks in the midst of fine-tuning: the ranking by what is seen then, and their accuracies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from evaluation.features.zoo_members import load_member
from evaluation.ranking.scoring import score
from evaluation.results.statistics import over_seeds
from evaluation.studies.claims import OPEN, Cell, Numbers, Summary, by_row
from evaluation.studies.drawing import curves
from evaluation.studies.rankings import TRUTH, Ranked
from evaluation.studies.study import Lab, Study
from evaluation.studies.subjects import Stage, Subjects, follow, percent

ACCURACY, LOGME = "accuracy", "LogME"


@dataclass(frozen=True, kw_only=True)
class Stages(Ranked):
    """Ranks by LogME of the features, and by the accuracy, after shares of the steps of fine-tuning.

    metrics: "LogME after SHARE" or "accuracy after SHARE", as `percent` has it. shares: see `follow`; 0 has no
    accuracy, as the head starts at zero.
    """

    shares: tuple[float, ...]

    def numbers(self, task: str, subjects: Subjects) -> Numbers:
        truth, splits, settings = subjects.truth(task), subjects.splits(task), subjects.settings(task)
        numbers = {f"{TRUTH} | {model}": truth[model] for model in settings}
        for name, setting in settings.items():
            model = load_member(subjects.zoo[name])
            stages = follow(model, splits, setting, self.shares, _both, subjects.lab)
            rows = {
                f"{kind} after {percent(share)}": value
                for share, values in stages.items()
                for kind, value in values.items()
            }
            numbers |= {f"{row} | {name}": value for row, value in rows.items() if row in self.metrics}
        return numbers


def _both(stage: Stage) -> dict[str, float]:
    logme = score("logme", stage.features("train"), stage.labels("train"))
    return {LOGME: logme, ACCURACY: stage.accuracy()}


@dataclass(frozen=True, kw_only=True)
class Curves(Study):
    """Accuracies of all models during fine-tuning on one task. data: at each scale. shares: of the steps."""

    benchmark: str
    data: Mapping[str, str]
    shares: tuple[float, ...]
    seeds: tuple[int, ...] = (0, 1)

    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        subjects = Subjects(self.benchmark, lab)
        models = subjects.names(self.data[lab.scale])
        return {
            f"{model} | {seed}": partial(self._curve, model, seed, subjects) for model in models for seed in self.seeds
        }

    def _curve(self, model: str, seed: int, subjects: Subjects) -> Numbers:
        task = self.data[subjects.lab.scale]
        loaded, setting = load_member(subjects.zoo[model]), replace(subjects.settings(task)[model], seed=seed)
        stages = follow(loaded, subjects.splits(task), setting, self.shares, Stage.accuracy, subjects.lab)
        return {percent(share): value for share, value in stages.items()}

    def summarize(self, by_job: Mapping[str, Numbers]) -> Summary:
        models = dict.fromkeys(key.rpartition(" | ")[0] for key in by_job)
        rows = {model: self._cells(by_row(by_job, model)) for model in models}
        ends = {model: cells[percent(self.shares[-1])].measured.value for model, cells in rows.items()}
        low, high = min(ends, key=ends.get), max(ends, key=ends.get)
        span = f"at the end {100 * ends[low]:.1f} % ({low}) to {100 * ends[high]:.1f} % ({high})"
        return Summary(rows, OPEN, f"{span}; an illustration: the paper gives no number for it")

    def _cells(self, seeds: Mapping[int, Numbers]) -> dict[str, Cell]:
        columns = map(percent, self.shares)
        return {column: Cell(over_seeds([numbers[column] for numbers in seeds.values()])) for column in columns}

    def draw(self, by_job: Mapping[str, Numbers], path: Path, title: str) -> None:
        lines = {
            name: [cell.measured for cell in cells.values()] for name, cells in self.summarize(by_job).rows.items()
        }
        curves(lines, [100 * share for share in self.shares], "share of the steps, %", path, title)
