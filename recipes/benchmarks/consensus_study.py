"""Which combination of metrics ranks best on tasks that took no part in choosing it, and are its probabilities right?

    python recipes/benchmarks/ranking_study.py ...      (scores and ground truth; see the page)
    python recipes/benchmarks/consensus_study.py        (seconds; reads results/ranking_study.json)

Every rule is fitted on all tasks but one and ranks the models of that one; "chosen" takes, for each task that is left
out, the rule that is best by leave-one-out among the others. Numbers are means over the tasks; intervals are over
models.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from consensus_plot import draw
from scipy.optimize import nnls
from scipy.stats import rankdata

from evaluation.ranking.agreement import MEASURES
from evaluation.ranking.checks import METRICS
from evaluation.ranking.consensus import consensus, normal_scores
from evaluation.ranking.paired_agreement import TAU, difference, over_tasks
from sslkit.text_tables import markdown

STUDY = Path(__file__).parent / "results" / "ranking_study.json"
NO_PART = ("random", "param_count", "feature_dim")  # baselines that see no image
AGAINST = ("knn", "h_score", "logme", "ped+logme", "itm")
FIRST_STUDY = ("knn", "h_score_regularized", "logme")  # of 2026-11-21, without variants of one of them
SHOWN = (TAU, "regret@1", "recall@3")
MOST = 5  # metrics of a greedy choice
RIDGE = 1.0  # added rows of the regression, in models


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


def common(tasks: Sequence[Task]) -> list[str]:
    """The metrics that score every model on every task, without those that see no image."""
    return [name for name in tasks[0].scores if all(name in task.scores for task in tasks) and name not in NO_PART]


def mean_agreement(tasks: Sequence[Task], ranker: Ranker) -> float:
    return float(np.mean([task.agreement(ranker(task)) for task in tasks]))


def read(path: Path) -> tuple[list[Task], list[str]]:
    """The tasks of a ranking study, and the names of those left out because kNN has no score on them.

    Metrics that lack a model on any of the tasks take no part.
    """
    study = json.loads(path.read_text())
    knn = study["metrics"].get("knn", {"scores": {}})["scores"]
    kept = {name: truth for name, truth in study["truth"].items() if knn.get(name) or not knn}
    whole = {
        metric: row["scores"]
        for metric, row in study["metrics"].items()
        if all(set(row["scores"].get(task, ())) == set(truth) for task, truth in kept.items())
    }
    tasks = []
    for name, truth in kept.items():
        columns = {metric: np.array([own[name][model] for model in truth]) for metric, own in whole.items()}
        reliability = {metric: study["metrics"][metric].get("reliability", {}).get(name) or 0.0 for metric in whole}
        accuracies = np.array(list(truth.values()))
        tasks.append(
            Task(name, tuple(truth), accuracies, columns, covariates(study.get("models", {}), truth), reliability)
        )
    return tasks, [name for name in study["truth"] if name not in kept]


def covariates(models: Mapping[str, Mapping], names: Iterable[str]) -> np.ndarray | None:
    """Return (M, P): logarithms of parameters and width, one column each family and kind of training; standardised.

    None if the study does not have them.
    """
    known = [models.get(name, {}) for name in names]
    if any("family" not in one for one in known):
        return None
    numbers = [[np.log(one["parameters"]), np.log(one["width"])] for one in known]
    kinds = [[one["family"] for one in known], [one["trained"] for one in known]]
    columns = [np.array(numbers), *(np.array(kind)[:, None] == np.unique(kind) for kind in kinds)]
    x = np.concatenate(columns, 1).astype(float)
    x -= x.mean(0)
    spread = x.std(0)
    return x[:, spread > 0] / spread[spread > 0]


def ranked_by_rules(tasks: Sequence[Task]) -> dict[str, list[tuple[Task, np.ndarray]]]:
    """Each task with its scores, by every rule fitted on the others, and by the one chosen on them."""
    return {"chosen": left_out(tasks, chosen)} | {name: left_out(tasks, rule) for name, rule in rules(tasks).items()}


def rows(tasks: Sequence[Task], draws: int) -> list[list[str]]:
    """The table: rules on tasks that they were not fitted on, single metrics, and differences to the first of these."""
    found = ranked_by_rules(tasks)
    found |= {f"{name} alone": left_out(tasks, single(name)) for name in AGAINST if name in common(tasks)}
    reference = next((name for name in AGAINST if name in common(tasks)), None)
    base = {task.name: task.scores[reference] for task in tasks}
    table = [["rule", *SHOWN, f"tau minus {reference}'s", f"regret minus {reference}'s"]]
    for name, ranked in found.items():
        pairs = _named(ranked)
        cells = [_cell(over_tasks(pairs, measure, n=draws), measure) for measure in SHOWN]
        paired = [(*pair, task.named(base[task.name])) for pair, (task, _) in zip(pairs, ranked, strict=True)]
        cells += [_cell(difference(paired, measure, n=draws), measure) for measure in SHOWN[:2]]
        table.append([name, *cells])
    return table


def _named(ranked: Sequence[tuple[Task, np.ndarray]]) -> list[tuple[dict[str, float], dict[str, float]]]:
    return [(task.named(task.truth), task.named(scores)) for task, scores in ranked]


def calibration(tasks: Sequence[Task], metrics: Sequence[str]) -> list[list[str]]:
    """The consensus of the metrics on each task: its correlation with the truth, its probabilities beside the facts.

    The correlation is that of normal scores. "in the shortlist": 1 if the really best model is among those that contain
    the best with 90 %, else 0.
    """
    table = [["task", "correlation", "P(best) of the best", "in the shortlist", "expected regret", "measured regret"]]
    numbers = []
    for task in tasks:
        scores = np.stack([task.scores[name] for name in metrics], 1)
        found = consensus(metrics, scores, accuracies=task.scores.get("knn"))
        best, first = int(task.truth.argmax()), found.first()[0]
        numbers.append(
            [
                float(np.corrcoef(found.score, normal_scores(task.truth))[0, 1]),
                float(found.best[best]),
                float(best in found.shortlist()),
                100 * float(found.regret[first]),
                100 * float(task.truth[best] - task.truth[first]),
            ]
        )
        table.append([task.name, *_numbers(numbers[-1])])
    return [*table, ["mean", *_numbers(np.mean(numbers, 0))]]


def _numbers(row: Sequence[float]) -> list[str]:
    return [f"{value:.2f}" for value in row]


def _cell(found, measure: str) -> str:
    scale = 100 if measure == "regret@1" else 1
    bounds = "" if found.interval is None else " ({:.2f} to {:.2f})".format(*(scale * end for end in found.interval))
    return f"{scale * found.value:.2f}{bounds}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", type=Path, default=STUDY, help="results of ranking_study.py")
    parser.add_argument(
        "--metrics", nargs="+", default=METRICS, help="of the consensus whose probabilities are checked"
    )
    parser.add_argument("--draws", type=int, default=1000, help="bootstrap draws of models")
    parser.add_argument("--picture", type=Path, default=STUDY.with_name("consensus_study.png"))
    args = parser.parse_args()
    tasks, left_out_tasks = read(args.study)
    for name in left_out_tasks:
        print(f"left out  {name}: kNN has no score there, as of several labels an image")
    table = rows(tasks, args.draws)
    print(markdown(table, range(1, len(table[0]))))
    for task in tasks:
        others = [other for other in tasks if other is not task]
        print(f"{task.name}: chosen on the others: {best_rule(others)}")
    known = [name for name in args.metrics if name in common(tasks)]
    checked = calibration(tasks, known)
    print(f"\nthe consensus of {', '.join(known)}")
    print(markdown(checked, range(1, len(checked[0]))))
    agreements = {
        name: over_tasks(_named(ranked), TAU, n=args.draws) for name, ranked in ranked_by_rules(tasks).items()
    }
    draw(json.loads(args.study.read_text()), agreements, checked[1:-1], args.picture)
    print(f"written   {args.picture}")


if __name__ == "__main__":
    main()
