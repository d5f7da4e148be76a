"""Studies of LEEP's supplement: one source model, many target tasks that are random subsets of a set's classes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from sklearn.metrics import f1_score

import sslkit
from evaluation.datasets import open_split
from evaluation.datasets.base import Split
from evaluation.features.extraction import extract
from evaluation.ranking.scoring import score
from evaluation.results.statistics import over_seeds
from evaluation.studies.claims import Cell, Claim, Numbers, Summary, by_row, evaluate_claims
from evaluation.studies.drawing import curves, draw_scatter
from evaluation.studies.study import Lab, Study
from evaluation.studies.subjects import Stage, follow, percent
from evaluation.studies.training import train_entry
from evaluation.tuning.classifier import Setting
from sslkit.numerics.logistic import fit_logistic
from sslkit.zoo.heads import LABELS

PENALTY = 1.0  # of the head: c of `fit_logistic`, the same for every task, scikit-learn's default
CLASSES = "fewer classes (control)"
SCORES = {"LEEP": "leep", "NCE": "nce", "H-score": "h_score"}


@dataclass(frozen=True, kw_only=True)
class Subsets(Study):
    """Tasks drawn from the classes of a target set; a head is trained on the source model's features of each.

    source: words for recipes/train.py at each scale, of a supervised run. target: data at each scale. tasks: how many.
    classes: fewest and most of a task. images: fewest and most training images of a class: equal, or drawn for each.
    measure: "accuracy" or "macro F1", on the test images of the task's classes. levels: of LEEP, of equal size.
    """

    source: Mapping[str, tuple[str, ...]]
    target: Mapping[str, str]
    classes: tuple[int, int]
    images: tuple[int, int]
    measure: str = "accuracy"
    tasks: int = 100
    levels: int = 5

    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        model = Source(self.source[lab.scale], self.target[lab.scale], lab)
        return {f"task | {number}": partial(self._task, number, model) for number in range(self.tasks)}

    def _task(self, number: int, model: "Source") -> Numbers:
        chosen, *rows = self._draw_task(number, model)
        train, test = model.train.take(rows[0]), model.test.take(rows[1])
        probs = model.probabilities(train.x)
        numbers = {name: score_subset(metric, train, probs) for name, metric in SCORES.items()}
        head = fit_logistic(train.x, train.y, PENALTY)
        guessed = head.predict(test.x)
        accuracy, f1 = float(np.mean(guessed == test.y)), f1_score(test.y, guessed, average="macro")
        return {**numbers, CLASSES: -float(len(chosen)), "accuracy": accuracy, "macro F1": f1}

    def _draw_task(self, number: int, model: "Source") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The classes of a task, its training and its test rows."""
        rng = np.random.default_rng([number, *self.images])
        fewest, most = self.classes
        chosen = rng.choice(model.n_classes, rng.integers(fewest, min(most, model.n_classes) + 1), replace=False)
        rows = np.concatenate(
            [_some(model.train.y == label, rng.integers(*_ends(self.images)), rng) for label in chosen]
        )
        return chosen, rows, np.flatnonzero(np.isin(model.test.y, chosen))

    def summarize(self, by_job: Mapping[str, Numbers]) -> Summary:
        levels = self.by_level(by_job)
        rows = {
            name: {self.measure: Cell(over_seeds([numbers[self.measure] for numbers in tasks]))}
            for name, tasks in levels.items()
        }
        text = "the highest fifth by LEEP transfers better than the lowest"
        outcome, sentence, findings = self.evaluate_ends(levels, text, self.measure, "tasks in a fifth")
        tasks = list(by_row(by_job, "task").values())
        return Summary(rows, outcome, f"{sentence}; {self._correlations(tasks)}", findings)

    def by_level(self, by_job: Mapping[str, Numbers]) -> dict[str, list[Numbers]]:
        """The numbers of the tasks in each level of LEEP, level 1 the lowest."""
        order = sorted(by_row(by_job, "task").values(), key=lambda numbers: numbers["LEEP"])
        parts = np.array_split(np.arange(len(order)), self.levels)
        return {f"level {level}": [order[row] for row in rows] for level, rows in enumerate(parts, 1)}

    def evaluate_ends(
        self, levels: Mapping[str, list[Numbers]], text: str, column: str, over: str
    ) -> tuple[str, str, tuple[str, ...]]:
        """The verdict of `evaluate_claims` that a column is larger in the highest level than in the lowest."""
        ladder = {f"{name} | {task}": numbers for name, tasks in levels.items() for task, numbers in enumerate(tasks)}
        claim = Claim(text, column, ((f"level {self.levels}", "level 1"),))
        return evaluate_claims([claim], ladder, {}, {column: "fraction"}, over=over)

    def _correlations(self, tasks: list[Numbers]) -> str:
        """Pearson's r of each score with the measure, its 95 % interval and p value."""
        measured = [numbers[self.measure] for numbers in tasks]
        return "; ".join(
            format_correlation(name, [numbers[name] for numbers in tasks], measured) for name in (*SCORES, CLASSES)
        )

    def draw(self, by_job: Mapping[str, Numbers], path: Path, title: str) -> None:
        tasks = list(by_row(by_job, "task").values())
        scores = {name: [numbers[name] for numbers in tasks] for name in (*SCORES, CLASSES)}
        draw_scatter(scores, {self.measure: [numbers[self.measure] for numbers in tasks]}, path, title)


@dataclass(frozen=True, kw_only=True)
class Convergence(Subsets):
    """The accuracy after shares of the steps minus that of the reference: the same network from random weights, after
    the same number of steps on the task. tuned: both trainings at each scale. shares: of the steps.
    """

    tuned: Mapping[str, Setting]
    shares: tuple[float, ...]

    def _task(self, number: int, model: "Source") -> Numbers:
        chosen, learn, judge = self._draw_task(number, model)
        splits = {name: model.subset(name, rows, chosen) for name, rows in (("train", learn), ("test", judge))}
        train, setting = model.train.take(learn), replace(self.tuned[model.lab.scale], seed=number)
        probs = model.probabilities(train.x)
        loaded, scratch = sslkit.load(model.entry), sslkit.load(f"random:{model.entry.folder}:{number}")
        accuracies = follow(loaded, splits, setting, self.shares, Stage.accuracy, model.lab)
        reference = follow(scratch, splits, setting, (1,), Stage.accuracy, model.lab)[1]
        numbers = {percent(share): accuracy - reference for share, accuracy in accuracies.items()}
        return {"LEEP": score_subset(SCORES["LEEP"], train, probs), "reference": reference, **numbers}

    def summarize(self, by_job: Mapping[str, Numbers]) -> Summary:
        levels, columns = self.by_level(by_job), [*map(percent, self.shares), "reference"]
        rows = {
            name: {
                column: Cell(over_seeds([100 * numbers[column] for numbers in tasks], unit="points"))
                for column in columns
            }
            for name, tasks in levels.items()
        }
        text = "tasks of a higher LEEP start nearer to the reference"
        return Summary(rows, *self.evaluate_ends(levels, text, columns[0], "tasks of a level"))

    def draw(self, by_job: Mapping[str, Numbers], path: Path, title: str) -> None:
        rows = self.summarize(by_job).rows
        lines = {name: [cells[percent(share)].measured for share in self.shares] for name, cells in rows.items()}
        words = "share of the steps, %; the line 0 is the reference's accuracy"
        curves(lines, [100 * share for share in self.shares], words, path, title, "accuracy minus reference, points", 1)


class Source:
    """The source model's features of the target set, and its class probabilities, computed when a task needs them."""

    def __init__(self, words: tuple[str, ...], target: str, lab: Lab) -> None:
        self.words, self.target, self.lab = words, target, lab

    @cached_property
    def entry(self):
        return train_entry(self.words, 0, self.lab)

    @cached_property
    def train(self):
        return self._features("train")

    @cached_property
    def test(self):
        return self._features("test")

    def _features(self, split: str):
        return self.features_of(open_split(self.target, split, root=self.lab.root))

    def features_of(self, split: Split):
        """The features of the images of an open split."""
        how = {"cache": self.lab.runtime.cache, "device": self.lab.runtime.device}
        return extract(self.entry, split, split.split, progress=self.lab.runtime.progress, **how)

    def subset(self, split: str, rows: np.ndarray, classes: np.ndarray) -> Split:
        """These images of a split, as a task of these classes alone."""
        whole = open_split(self.target, split, root=self.lab.root)
        labels = np.sort(classes)
        picked = whole.take(rows)
        return replace(picked, y=np.searchsorted(labels, picked.y), classes=[whole.classes[label] for label in labels])

    @property
    def n_classes(self) -> int:
        return len(self.train.classes)

    def probabilities(self, x: np.ndarray) -> torch.Tensor:
        """(N, S) of the source classifier."""
        with torch.no_grad():
            return self.entry.head(LABELS)(torch.from_numpy(np.array(x))).double().softmax(1)


def _ends(images: tuple[int, int]) -> tuple[int, int]:
    return images[0], images[1] + 1


def _some(is_class: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """At most `count` rows of a class."""
    rows = np.flatnonzero(is_class)
    return rng.choice(rows, min(count, len(rows)), replace=False)


def score_subset(metric: str, train, probs: torch.Tensor) -> float:
    return score(metric, train.x, train.y, source_probs=probs)


def format_correlation(name: str, scores: list[float], measured: list[float]) -> str:
    correlation = stats.pearsonr(scores, measured)
    low, high = correlation.confidence_interval(0.95)
    return f"{name}: r {correlation.statistic:.2f} ({low:.2f} to {high:.2f}), p {correlation.pvalue:.1g}"
