"""LEEP's figure 3: how fast a fine-tuned source model reaches the accuracy of one trained on the target task alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evaluation.features.models import load_model
from evaluation.papers.claims import Claim, judged
from evaluation.papers.drawing import curves
from evaluation.papers.experiment import Cell, Numbers, Shown
from evaluation.papers.following import Stage, follow, percent
from evaluation.papers.names import by_row
from evaluation.papers.subsets import SCORES, Source, Subsets, scored
from evaluation.results.statistics import Estimate, over_seeds
from evaluation.tuning.classifier import Setting


@dataclass(frozen=True, kw_only=True)
class Convergence(Subsets):
    """The accuracy after shares of the steps minus that of the reference: the same network from random weights, after
    the same number of steps on the task. tuned: both trainings at each scale. shares: of the steps.
    """

    tuned: Mapping[str, Setting]
    shares: tuple[float, ...]

    def _task(self, number: int, model: Source) -> Numbers:
        chosen, learn, judge = self._drawn(number, model)
        splits = {name: model.subset(name, rows, chosen) for name, rows in (("train", learn), ("test", judge))}
        train, setting = model.train.take(learn), replace(self.tuned[model.lab.scale], seed=number)
        probs = model.probabilities(train.x)
        loaded, scratch = load_model(model.entry), load_model(f"random:{model.entry.folder}:{number}")
        found = follow(loaded, splits, setting, self.shares, Stage.accuracy, model.lab)
        reference = follow(scratch, splits, setting, (1,), Stage.accuracy, model.lab)[1]
        numbers = {percent(share): accuracy - reference for share, accuracy in found.items()}
        return {"LEEP": scored(SCORES["LEEP"], train, probs), "reference": reference, **numbers}

    def shown(self, found: Mapping[str, Numbers]) -> Shown:
        order = sorted(by_row(found, "task").values(), key=lambda numbers: numbers["LEEP"])
        levels = {
            f"level {level}": [order[row] for row in rows]
            for level, rows in enumerate(np.array_split(np.arange(len(order)), self.levels), 1)
        }
        rows = {name: {key: Cell(_points(tasks, key)) for key in self._columns()} for name, tasks in levels.items()}
        ladder = {f"{name} | {task}": one for name, tasks in levels.items() for task, one in enumerate(tasks)}
        early = percent(self.shares[0])
        claim = Claim(
            "tasks of a higher LEEP start nearer to the reference", early, ((f"level {self.levels}", "level 1"),)
        )
        return Shown(rows, *judged([claim], ladder, {}, {early: "fraction"}, over="tasks of a level"))

    def _columns(self) -> list[str]:
        return [*map(percent, self.shares), "reference"]

    def draw(self, found: Mapping[str, Numbers], path: Path, title: str) -> None:
        rows = self.shown(found).rows
        lines = {name: [cells[percent(share)].measured for share in self.shares] for name, cells in rows.items()}
        words = "share of the steps, %; the line 0 is the reference's accuracy"
        curves(lines, [100 * share for share in self.shares], words, path, title, "accuracy minus reference, points", 1)


def _points(tasks: list[Numbers], key: str) -> Estimate:
    """The mean of a number over tasks, in points."""
    return over_seeds([100 * one[key] for one in tasks], unit="points")
