"""The constants of rank.py and choose.py, from both ranking studies and the records of fine-tuning.

    python recipes/benchmarks/ranking/run.py constants     (a second; writes them into constants.json)

`evaluation.ranking.consensus` assumes two constants: how well metrics agree with fine-tuning, and how far apart the
models' accuracies then are. `evaluation.ranking.choice.beliefs` assumes the noise of the seeds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cli
import numpy as np
import results
from ranking.truth import seed_noise

from evaluation.ranking.consensus import consensus, normal_scores

Study = Mapping[str, Any]  # results of run.py study


@dataclass(frozen=True)
class Task:
    """truth: (M,) accuracies of `models` after fine-tuning. scores: metric -> (M,)."""

    name: str
    models: tuple[str, ...]
    truth: np.ndarray
    scores: Mapping[str, np.ndarray]


def main() -> None:
    cli.parser(__doc__).parse_args()
    study, first = studies()
    measured = {name: round(value, 3) for name, value in agreements(study, first).items()}
    results.keep_constant("evaluation.ranking.consensus:AGREEMENT", measured, "ranking/study")
    results.keep_constant("evaluation.ranking.consensus:SPREAD", round(spread(study, first), 3), "ranking/study")
    results.keep_constant("evaluation.ranking.choice.beliefs:SEED_NOISE", round(seed_noise(), 3), "ranking/truth")


def studies() -> list[Study]:
    """The study of 42 models, and the first one, of 25."""
    return [results.load(f"ranking/{name}") for name in ("study", "first_study")]


def tasks_of(study: Study, metrics: Sequence[str] = ()) -> Iterator[Task]:
    """The tasks of a study, with the models that kNN and all metrics score; none where there are no such models."""
    for name, truth in study["truth"].items():
        rows = {metric: study["metrics"].get(metric, {"scores": {}}) for metric in ("knn", *metrics)}
        columns = {metric: row["scores"].get(name, {}) for metric, row in rows.items()}
        models = tuple(model for model in truth if all(model in column for column in columns.values()))
        if models:
            scores = {metric: np.array([column[model] for model in models]) for metric, column in columns.items()}
            yield Task(name, models, np.array([truth[model] for model in models]), scores)


def agreements(study: Study, first: Study) -> dict[str, float]:
    """The mean correlation with the truth, over the tasks of both, of each metric that scores all models of `study`."""
    whole = [task.models for task in tasks_of(study)]
    by_metric = {}
    for metric in sorted(study["metrics"]):
        tasks = list(tasks_of(study, [metric]))
        if [task.models for task in tasks] == whole:
            by_metric[metric] = float(
                np.mean([correlation(task, [metric]) for task in (*tasks, *tasks_of(first, [metric]))])
            )
    return by_metric


def correlation(task: Task, metrics: Sequence[str]) -> float:
    """The correlation of the metrics' consensus with the truth as normal scores."""
    scores = np.stack([task.scores[name] for name in metrics], 1)
    # of no agreement, so that nothing is drawn
    stated = consensus(metrics, scores, accuracies=task.scores["knn"], agreement=np.nan, seed=0)
    return float(np.corrcoef(stated.score, normal_scores(task.truth))[0, 1])


def spread(*studies: Study) -> float:
    """The truth's best less its mean, over kNN's best less its mean: the mean over all tasks."""
    pairs = [(task.truth, task.scores["knn"]) for study in studies for task in tasks_of(study)]
    return float(np.mean([(truth.max() - truth.mean()) / (knn.max() - knn.mean()) for truth, knn in pairs]))
