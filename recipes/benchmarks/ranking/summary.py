"""Summary of the ranking study: agreement of metrics with the ground truth by task and over tasks, papers' claims."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.ranking.truth.agreement import Agreement, agreement
from evaluation.ranking.truth.paired_agreement import TAU, difference, over_tasks

MEASURES = (TAU, "weighted tau (ITM)", "regret@1")
RELIABLE = (TAU, "Pearson")  # of one half of the seeds with the other
BASELINES = ("param_count", "feature_dim", "knn", "linear_probe", "random")
CLAIMS = (  # a metric, the metric it should beat, and the source
    ("ped+logme", "logme", "PED, Li et al. 2023"),
    ("ped+sfda", "sfda", "PED, Li et al. 2023"),
    ("ped+gbc", "gbc", "PED, Li et al. 2023"),
    ("itm", "logme", "ITM, Zheng et al. 2025"),
)

Scores = Mapping[str, Mapping[str, Any]]
Truth = Mapping[str, Mapping[str, float]]


def summarise(
    cells: Mapping[str, Scores],
    truth: Truth,
    seeds: Mapping[str, Mapping[str, list[float]]],
    apart: Sequence[str] = (),
    **how: int,
) -> dict[str, Any]:
    """Summarise as metrics, claims, ceiling, reliability and chance.

    cells: {task: {metric: {scores, seconds, notes}}}. seeds: {task: {model: accuracies}}. how: draws and seed.
    apart: tasks that few metrics can score, as those of several labels an image; they take no part in the means.
    """
    metrics = list(dict.fromkeys(metric for column in cells.values() for metric in column))
    common = [task for task in truth if task not in apart] or list(truth)
    rows = {metric: _row(metric, cells, truth, common, how) for metric in metrics}
    models = {name for column in truth.values() for name in column}
    among = {task: cells[task] for task in common}
    everywhere = set.intersection(*(set(column) for column in among.values()))  # metrics scored on every task
    chance = [max(truth[task].values()) - statistics.mean(truth[task].values()) for task in common]  # expected regrets
    return {
        "n_models": len(models),
        "n_tasks": len(truth),
        "mean_of": common,
        "metrics": rows,
        "claims": [_claim(*claim, among, truth, how) for claim in CLAIMS if {*claim[:2]} <= everywhere],
        "ceiling": _ceiling({task: column for task, column in seeds.items() if task in common}, how),
        "reliability": _reliability(seeds, how),
        "chance": {TAU: 0.0, "regret@1": statistics.mean(chance)},
        "notes": sorted({note for column in cells.values() for cell in column.values() for note in cell["notes"]}),
    }


def _row(
    metric: str, cells: Mapping[str, Scores], truth: Truth, common: Sequence[str], how: Mapping[str, int]
) -> dict[str, Any]:
    """Row of one metric. models: number scored in every task of `common`; mean: over these, None for fewer than three.

    tasks: agreement on each task.
    """
    cells_of_metric = {task: column[metric] for task, column in cells.items() if metric in column}
    among = {task: cell for task, cell in cells_of_metric.items() if task in common}
    seconds = [value for cell in cells_of_metric.values() for value in cell["seconds"].values()]
    return {
        "baseline": metric in BASELINES,
        "models": min((len(cell["scores"]) for cell in among.values()), default=0),
        "tasks": {task: _on_task(truth[task], cell["scores"], how) for task, cell in cells_of_metric.items()},
        "mean": {measure: _mean(measure, truth, among, how) for measure in MEASURES},
        "seconds_per_model": statistics.mean(seconds) if seconds else None,
        "scores": {task: cell["scores"] for task, cell in cells_of_metric.items()},
        "reliability": {task: cell["reliability"] for task, cell in cells_of_metric.items()},
    }


def _mean(
    measure: str, truth: Truth, among: Mapping[str, Mapping[str, Any]], how: Mapping[str, int]
) -> dict[str, Any] | None:
    pairs = [(truth[task], cell["scores"]) for task, cell in among.items()]
    return _numbers(over_tasks(pairs, measure, **_n(how))) if pairs else None


def _on_task(truth: Mapping[str, float], scores: Mapping[str, float], how: Mapping[str, int]) -> dict[str, Any]:
    """{measure: {value, interval, models}}; None for fewer than two models."""
    if len(scores) < 2:
        return dict.fromkeys(MEASURES)
    truths = {name: truth[name] for name in scores}
    return {measure.name: _numbers(measure) for measure in agreement(truths, scores, measures=MEASURES, **_n(how))}


def _claim(better: str, than: str, by: str, cells: Mapping[str, Scores], truth: Truth, how: Mapping) -> dict[str, Any]:
    """The paired difference in weighted tau and in regret@1, over tasks and in each."""
    tasks = {task: (truth[task], column[better]["scores"], column[than]["scores"]) for task, column in cells.items()}
    differences = {measure: difference(list(tasks.values()), measure, **_n(how)) for measure in MEASURES}
    by_task = {task: _numbers(difference([task_scores], **_n(how))) for task, task_scores in tasks.items()}
    return {
        "metric": better,
        "against": than,
        "claimed_by": by,
        "difference": {measure: _numbers(estimate) for measure, estimate in differences.items()},
        "by_task": by_task,
        "verdict": verdict(differences[TAU]),
    }


def verdict(found: Agreement) -> str:
    """Conclusion from the interval of a paired difference."""
    if found.interval is None:
        return "no interval"
    low, high = found.interval
    return "higher" if low > 0 else "lower" if high < 0 else "not to be told apart"


def _ceiling(seeds: Mapping[str, Mapping[str, list[float]]], how: Mapping[str, int]) -> dict[str, Any] | None:
    """Agreement of fine-tuning with one seed with the mean of the others, an upper reference for metrics."""
    columns = [column for column in seeds.values() if column]
    if not columns or any(len(values) < 2 for column in columns for values in column.values()):
        return None
    tasks = [tuple(_means(column, chosen) for chosen in (slice(1, None), slice(1))) for column in columns]
    return {measure: _numbers(over_tasks(tasks, measure, **_n(how))) for measure in MEASURES}


def _reliability(seeds: Mapping[str, Mapping[str, list[float]]], how: Mapping[str, int]) -> dict[str, Any] | None:
    """Agreement of one half of the seeds of each model, the even places, with the other: over tasks, and in each."""
    tasks = {
        task: tuple(_means(column, slice(start, None, 2)) for start in (0, 1))
        for task, column in seeds.items()
        if column and all(len(values) > 1 for values in column.values())
    }
    if not tasks:
        return None
    mean = {name: _numbers(over_tasks(list(tasks.values()), name, **_n(how))) for name in RELIABLE}
    by_task = {
        task: {name: _numbers(over_tasks([halves], name, **_n(how))) for name in RELIABLE}
        for task, halves in tasks.items()
    }
    return {"mean": mean, "tasks": by_task}


def _means(column: Mapping[str, list[float]], seeds: slice) -> dict[str, float]:
    return {name: statistics.mean(values[seeds]) for name, values in column.items()}


def _numbers(found: Agreement) -> dict[str, Any] | None:
    """Value and interval for the results file; None without a value."""
    if found.value != found.value:
        return None
    interval = None if found.interval is None else [round(bound, 6) for bound in found.interval]
    return {"value": round(found.value, 6), "interval": interval, "models": found.n}


def _n(how: Mapping[str, int]) -> dict[str, int]:
    return {"n": how["draws"], "seed": how["seed"]}
