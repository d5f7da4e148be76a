"""Are the probabilities and the regret of the consensus right? Stated beside measured, for each task by the others.

`evaluation.ranking.consensus` assumes two constants: how well metrics agree with fine-tuning, and how far apart the
models' accuracies then are. For each task they are taken from the other tasks.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ranking.rules import Task

from evaluation.ranking.consensus import Consensus, consensus, normal_scores

COLUMNS = (
    "task",
    "correlation",
    "spread",
    "P(best) of the best",
    "in the shortlist",
    "of models",
    "expected regret",
    "measured regret",
)


def further(path: Path, metrics: Sequence[str]) -> list[Task]:
    """The tasks of another ranking study, with the models that kNN and all metrics score; the names say the study.

    None of them if it lacks one of the metrics.
    """
    study = json.loads(path.read_text())
    if not {"knn", *metrics} <= set(study["metrics"]):
        return []
    tasks = []
    for name, truth in study["truth"].items():
        columns = {metric: study["metrics"][metric]["scores"].get(name, {}) for metric in {"knn", *metrics}}
        models = tuple(model for model in truth if all(model in column for column in columns.values()))
        scores = {metric: np.array([column[model] for model in models]) for metric, column in columns.items()}
        tasks.append(Task(f"{name} ({path.stem})", models, np.array([truth[model] for model in models]), scores))
    return tasks


def calibration(tasks: Sequence[Task], metrics: Sequence[str]) -> list[list[str]]:
    """A row for each task, then the means.

    correlation, spread: see `measured`. "in the shortlist": 1 if the really best model is among those that contain the
    best with 90 %, else 0; "of models": their share of all. Regret is in points of accuracy.
    """
    found = [measured(task, metrics) for task in tasks]
    numbers = []
    for place, task in enumerate(tasks):
        agreement, spread = np.mean([one for other, one in enumerate(found) if other != place], 0)
        stated = stated_by(task, metrics, agreement=agreement, spread=spread)
        best, first, listed = int(task.truth.argmax()), stated.first()[0], stated.shortlist()
        lost = 100 * float(task.truth[best] - task.truth[first])
        sure = [float(stated.best[best]), float(best in listed), len(listed) / len(task.truth)]
        numbers.append([*found[place], *sure, 100 * float(stated.regret[first]), lost])
    rows = [[task.name, *_told(row)] for task, row in zip(tasks, numbers, strict=True)]
    return [list(COLUMNS), *rows, ["mean", *_told(np.mean(numbers, 0))]]


def spread(tasks: Sequence[Task]) -> float:
    """The mean spread over the tasks."""
    return float(np.mean([measured(task, ["knn"])[1] for task in tasks]))


def agreements(tasks: Sequence[Task], also: Sequence[Path]) -> dict[str, float]:
    """The mean correlation with the truth, over all tasks, of each metric that scores every model of the first."""
    found = {}
    for metric in sorted(set.intersection(*(set(task.scores) for task in tasks))):
        everything = [*tasks, *(task for path in also for task in further(path, [metric]))]
        found[metric] = float(np.mean([measured(task, [metric])[0] for task in everything]))
    return found


def ranges(tasks: Sequence[Task], metrics: Sequence[str]) -> str:
    """The constants, with their ranges."""
    found = np.array([measured(task, metrics) for task in tasks])
    return ", ".join(
        f"{name} {column.mean():.2f} ({column.min():.2f} to {column.max():.2f})"
        for name, column in zip(("correlation", "spread"), found.T, strict=True)
    )


def measured(task: Task, metrics: Sequence[str]) -> tuple[float, float]:
    """The correlation of the consensus with the truth as normal scores; the truth's best less its mean, over kNN's."""
    stated = stated_by(task, metrics, agreement=np.nan)  # the scores alone: no probabilities are drawn
    correlation = float(np.corrcoef(stated.score, normal_scores(task.truth))[0, 1])
    knn = task.scores["knn"]
    return correlation, float((task.truth.max() - task.truth.mean()) / (knn.max() - knn.mean()))


def stated_by(task: Task, metrics: Sequence[str], **constants: float) -> Consensus:
    scores = np.stack([task.scores[name] for name in metrics], 1)
    return consensus(metrics, scores, accuracies=task.scores["knn"], **constants)


def _told(row: Sequence[float]) -> list[str]:
    return [f"{value:.2f}" for value in row]
