"""The rules of the consensus study: how several metrics become one order of the models of a task.

A rule is fitted on some tasks, whose truth it may use, and returns what ranks the models of any other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import nnls
from scipy.stats import rankdata

from evaluation.ranking.consensus import normal_scores
from evaluation.ranking.truth.agreement import MEASURES
from evaluation.ranking.truth.paired_agreement import TAU

NO_PART = ("random", "param_count", "feature_dim")  # baselines that see no image
FIRST_STUDY = ("knn", "h_score_regularized", "logme")  # of 2026-11-21, without variants of one of them
MOST = 5  # metrics of a greedy choice
RIDGE = 1.0  # added rows of the regression, in models
HALVINGS = 10  # of the models, for ranking those that took no part in a fit


@dataclass(frozen=True)
class Task:
    """name, models (M names), truth (M,), scores: metric -> (M,), of metrics that score every model.

    covariates: (M, P) of the models, without an image: size, width, family, how they were trained.
    reliability: metric -> correlation of its scores on two halves of the images, without the truth.
    """

    name: str
    models: tuple[str, ...]
    truth: np.ndarray
    scores: Mapping[str, np.ndarray]
    covariates: np.ndarray | None = None
    reliability: Mapping[str, float] = field(default_factory=dict)

    def of(self, places: np.ndarray) -> "Task":
        """Return the task with the models at these places."""
        return replace(
            self,
            models=tuple(np.array(self.models)[places]),
            truth=self.truth[places],
            scores={metric: scores[places] for metric, scores in self.scores.items()},
            covariates=None if self.covariates is None else self.covariates[places],
        )

    def named(self, scores: np.ndarray) -> dict[str, float]:
        return dict(zip(self.models, map(float, scores), strict=True))

    def agreement(self, scores: np.ndarray, measure: str = TAU) -> float:
        return float(MEASURES[measure](self.truth, scores, np.arange(len(self.truth))))

    def normal(self, metrics: Sequence[str]) -> np.ndarray:
        """Normal scores (K, M) of the metrics."""
        return normal_scores(np.stack([self.scores[name] for name in metrics]))


Ranker = Callable[[Task], np.ndarray]
Rule = Callable[[Sequence[Task]], Ranker]


def mean_of_ranks(tasks: Sequence[Task]) -> Ranker:
    metrics = common(tasks)
    return lambda task: np.mean([rankdata(task.scores[name]) for name in metrics], 0)


def mean_of_normal_scores(tasks: Sequence[Task]) -> Ranker:
    metrics = common(tasks)
    return lambda task: task.normal(metrics).mean(0)


def mean_of_standardised(tasks: Sequence[Task]) -> Ranker:
    metrics = common(tasks)

    def standardised(x: np.ndarray) -> np.ndarray:
        return (x - x.mean()) / (x.std() or 1.0)

    return lambda task: np.mean([standardised(task.scores[name]) for name in metrics], 0)


def weighted_by_agreement(tasks: Sequence[Task]) -> Ranker:
    """Normal scores weighted by each metric's mean agreement on the fitted tasks, none below 0."""
    metrics = common(tasks)
    weights = np.array([max(0.0, mean_agreement(tasks, single(name)(tasks))) for name in metrics])
    return lambda task: weights @ task.normal(metrics)


def weighted_by_reliability(tasks: Sequence[Task]) -> Ranker:
    """Normal scores weighted by each metric's reliability on the ranked task itself, none below 0."""
    metrics = common(tasks)
    return lambda task: np.array([max(0.0, task.reliability.get(name, 0.0)) for name in metrics]) @ task.normal(metrics)


def best_single(tasks: Sequence[Task]) -> Ranker:
    best = max(common(tasks), key=lambda name: mean_agreement(tasks, single(name)(tasks)))
    return single(best)(tasks)


def greedy(tasks: Sequence[Task]) -> Ranker:
    """Mean normal score of at most MOST metrics, each the one that most raises the agreement on these tasks."""
    chosen: list[str] = []
    reached = -np.inf
    while len(chosen) < MOST:
        found = {
            name: mean_agreement(tasks, of_metrics([*chosen, name])) for name in common(tasks) if name not in chosen
        }
        best = max(found, key=found.get)
        if found[best] <= reached:
            break
        chosen, reached = [*chosen, best], found[best]
    return of_metrics(chosen)


def regression(tasks: Sequence[Task]) -> Ranker:
    """Least squares of the truth's normal scores on those of the metrics, with weights of at least 0 and a ridge."""
    return fitted(tasks, lambda task, metrics: task.normal(metrics).T)


def regression_with_covariates(tasks: Sequence[Task]) -> Ranker:
    """Likewise, with the covariates of the models beside the metrics, whose weights may have either sign."""

    def columns(task: Task, metrics: Sequence[str]) -> np.ndarray:
        return np.concatenate([task.normal(metrics).T, task.covariates, -task.covariates], 1)

    return fitted(tasks, columns)


def fitted(tasks: Sequence[Task], columns: Callable[[Task, Sequence[str]], np.ndarray]) -> Ranker:
    metrics = common(tasks)
    x = np.concatenate([columns(task, metrics) for task in tasks])
    y = np.concatenate([normal_scores(task.truth) for task in tasks])
    ridge = np.sqrt(RIDGE) * np.eye(x.shape[1])
    weights, _ = nnls(np.concatenate([x, ridge]), np.concatenate([y, np.zeros(x.shape[1])]))
    return lambda task: columns(task, metrics) @ weights


def single(name: str) -> Rule:
    return lambda tasks: lambda task: task.scores[name]


def of_metrics(metrics: Sequence[str]) -> Ranker:
    return lambda task: task.normal(metrics).mean(0)


def of_the_first_study(tasks: Sequence[Task]) -> Ranker:
    """The three best metrics of the study of 25 models and four other tasks; nothing is fitted here."""
    return of_metrics(FIRST_STUDY)


RULES: dict[str, Rule] = {
    ", ".join(FIRST_STUDY): of_the_first_study,
    "mean of ranks": mean_of_ranks,
    "mean of normal scores": mean_of_normal_scores,
    "mean of standardised scores": mean_of_standardised,
    "weighted by agreement": weighted_by_agreement,
    "weighted by reliability": weighted_by_reliability,
    "greedy choice of metrics": greedy,
    "regression": regression,
    "regression with covariates": regression_with_covariates,
    "best single metric": best_single,
}


FITTED = (
    "weighted by agreement",
    "greedy choice of metrics",
    "regression",
    "regression with covariates",
    "best single metric",
)


def rules(tasks: Sequence[Task]) -> dict[str, Rule]:
    """The rules whose metrics and covariates all tasks have."""
    kept = dict(RULES)
    if not set(FIRST_STUDY) <= set(common(tasks)):
        del kept[", ".join(FIRST_STUDY)]
    if any(task.covariates is None for task in tasks):
        del kept["regression with covariates"]
    return kept


def chosen(tasks: Sequence[Task]) -> Ranker:
    """The rule that ranks best by leave-one-out within the given tasks, fitted on all of them."""
    return RULES[best_rule(tasks)](tasks)


def best_rule(tasks: Sequence[Task]) -> str:
    found = rules(tasks)
    return max(found, key=lambda name: np.mean([task.agreement(s) for task, s in left_out(tasks, found[name])]))


def left_out(tasks: Sequence[Task], rule: Rule) -> list[tuple[Task, np.ndarray]]:
    """Each task with its scores by the rule fitted on the others."""
    return [(task, rule([other for other in tasks if other is not task])(task)) for task in tasks]


def unseen(tasks: Sequence[Task], rule: Rule, halvings: int = HALVINGS) -> list[tuple[Task, np.ndarray]]:
    """Each task with scores by the rule fitted on the other tasks and on models without the one that is scored.

    The tasks have the same models. Each half of them is scored by a fit to the other half, as normal scores within it:
    beside the fitted models, it would stand lower the better these are. Scores are the means over the halvings, drawn
    with seed 0.
    """
    count = len(tasks[0].models)
    rng = np.random.default_rng(0)
    halves = [np.array_split(rng.permutation(count), 2) for _ in range(halvings)]
    found = []
    for task in tasks:
        total = np.zeros(count)
        for scored, fitted_on in [pair for first, second in halves for pair in ((first, second), (second, first))]:
            ranker = rule([other.of(fitted_on) for other in tasks if other is not task])
            total[scored] += normal_scores(ranker(task)[scored])
        found.append((task, total / halvings))
    return found


def common(tasks: Sequence[Task]) -> list[str]:
    """The metrics that score every model on every task, without those that see no image."""
    return [name for name in tasks[0].scores if all(name in task.scores for task in tasks) and name not in NO_PART]


def mean_agreement(tasks: Sequence[Task], ranker: Ranker) -> float:
    return float(np.mean([task.agreement(ranker(task)) for task in tasks]))
