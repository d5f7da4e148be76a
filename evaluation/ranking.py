"""rank(zoo, dataset, metrics) -> Ranking: which of many models will fine-tune best, before any is fine-tuned."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from evaluation.agreement import Agreement, agreement
from evaluation.candidates import SEVERAL, Candidate, of_arrays, of_models
from evaluation.features import Features
from evaluation.resampling import Column, replicates
from evaluation.scoring import MetricResult, Spec, needs, of_sample, parse, takes_numbers
from sslkit.errors import UserError
from sslkit.zoo import write_whole

METRICS = ("ped+logme", "itm", "logme", "leep")


@dataclass(frozen=True, eq=False)
class Ranking:
    """M models by K metrics on one task.

    data: the task; n: its images. models: M names. metrics: K names.
    scores: (M, K), nan where a model has not what the metric needs. intervals: (M, K, 2) 95 % over images, nan without.
    ranks: (M, K) 1 is best, equal scores share the mean. rank_intervals: (M, K, 2) 95 % over images.
    tied: (M, K) bool: not to be told from the metric's best model by these images.
    mean_rank: (M,) over the metrics that score every model (Borda), nan if none does.
    seconds, memory: (M, K) cost of each score; what metrics share is counted with the first. bytes, nan if unknown.
    notes: what to know of models and metrics. truth: (M,) accuracies, or None; agreement: {metric: numbers} with it.
    """

    data: str
    n: int
    models: tuple[str, ...]
    metrics: tuple[str, ...]
    scores: np.ndarray
    intervals: np.ndarray
    ranks: np.ndarray
    rank_intervals: np.ndarray
    tied: np.ndarray
    mean_rank: np.ndarray
    seconds: np.ndarray
    memory: np.ndarray
    notes: tuple[str, ...] = ()
    truth: np.ndarray | None = None
    agreement: Mapping[str, Sequence[Agreement]] = field(default_factory=dict)
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def order(self) -> list[str]:
        """Models, best first by mean rank; models without one last."""
        return [self.models[m] for m in np.argsort(self.mean_rank, kind="stable")]

    @property
    def best(self) -> str:
        return self.order[0]

    def table(self, style: str = "text") -> str:
        """See `evaluation.ranking_table.table`."""
        from evaluation.ranking_table import table

        return table(self, style)

    def to_json(self, path: str | Path) -> Path:
        """Write all of it, whole or not at all; nan is null."""
        with write_whole(Path(path)) as partial:
            partial.write_text(json.dumps(_plain(vars(self)), indent=2, allow_nan=False) + "\n")
        return Path(path)


def rank(
    zoo: Any,
    dataset: Any = None,
    metrics: Sequence[str] = METRICS,
    *,
    truth: Mapping[str, float] | Sequence[float] | None = None,
    bootstrap: int = 200,
    seed: int = 0,
    device: str = "cpu",
    say: Callable[[str], None] = lambda line: None,
    **how: Any,
) -> Ranking:
    """Score every model of a zoo by every metric.

    zoo: a folder of zoo entries, a list of models (`evaluation.load_model`), a mapping of names to models; or a mapping
        of names to Features or pairs (x, y) of the same images, and no dataset.
    dataset: see `evaluation.open_split`; its split `split="train"` is used.
    metrics: of `evaluation.metrics()`, with options in brackets: `ped(lam=0.3)+logme`. A metric that a model has not
        the inputs for (LEEP without a source classifier) gives nan for it, and a note.
    truth: {model: accuracy after fine-tuning}, or accuracies in the order of the models; adds the agreement.
    bootstrap: redrawn sets of images behind intervals and ties, 0 for none; see `evaluation.resampling.replicates`.
    seed, device: of the metrics. how: split, max_images, root, image_size and the options of `evaluation.extract`.
    Raises UserError before anything is extracted for unknown metrics, models and data.
    """
    specs = [parse(metric) for metric in _listed(metrics)]
    candidates = _candidates(zoo, dataset, seed=seed, device=device, say=say, **how)
    names = tuple(candidate.name for candidate in candidates)
    accuracies = _truth(truth, names)
    scored = []
    for spec in specs:
        say(f"{spec.name} on {len(candidates)} models")
        scored.append(_scored(spec, candidates))
    say(f"intervals: {bootstrap} redrawn sets of images")
    redrawn = replicates([_column(one) for one in scored], [one.sample for one in candidates], bootstrap, seed)
    columns = [_in_numbers(one, again, len(candidates)) for one, again in zip(scored, redrawn, strict=True)]
    stacked = {name: np.stack([column[name] for column in columns], 1) for name in columns[0]}
    return Ranking(
        data=_data_name(dataset),
        n=len(candidates[0].sample),
        models=names,
        metrics=tuple(spec.name for spec in specs),
        mean_rank=borda(stacked["ranks"]),
        notes=_notes(specs, candidates, [results for _, results in scored]),
        truth=accuracies,
        agreement={} if accuracies is None else _agreements(specs, stacked["scores"], accuracies, seed),
        details={spec.name: _details(results, names) for spec, results in scored},
        **stacked,
    )


def borda(ranks: np.ndarray) -> np.ndarray:
    """(M,) mean rank over the metrics that rank every model. ranks: (M, K), nan where a metric has no score."""
    whole = ranks[:, ~np.isnan(ranks).any(0)]
    return whole.mean(1) if whole.shape[1] else np.full(len(ranks), np.nan)


def ranks_of(scores: np.ndarray) -> np.ndarray:
    """(..., M) ranks, 1 for the highest, equal ones sharing the mean; nan stays nan and is not counted."""
    found = np.full(scores.shape, np.nan)
    for row in np.ndindex(scores.shape[:-1]):
        known = ~np.isnan(scores[row])
        found[row][known] = rankdata(-scores[row][known])
    return found


def _listed(metrics: Any) -> list[str]:
    listed = [metrics] if isinstance(metrics, str) else list(metrics)
    if not listed:
        raise UserError("there is no metric to rank by: metrics=[ped+logme,itm,logme,leep]")
    repeated = {metric for metric in listed if listed.count(metric) > 1}
    if repeated:
        raise UserError(f"metrics names {sorted(repeated)[0]} twice")
    return listed


def _candidates(zoo: Any, dataset: Any, *, seed: int, device: str, say: Callable, **how: Any) -> list[Candidate]:
    at_hand = isinstance(zoo, Mapping) and zoo and all(isinstance(one, (Features, tuple)) for one in zoo.values())
    if at_hand and dataset is None:
        return of_arrays(zoo, seed, device)
    if dataset is None:
        raise UserError("name the task to rank for: dataset=, a data set or a folder of images with labels")
    return of_models(zoo, dataset, how.pop("split", "train"), seed=seed, device=device, say=say, **how)


def _scored(spec: Spec, candidates: Sequence[Candidate]) -> tuple[Spec, dict[int, MetricResult]]:
    """A metric with its results, by the number of the model; models that it cannot score have none."""
    able = [m for m, candidate in enumerate(candidates) if _has_inputs(spec, candidate)]
    return spec, {m: of_sample(spec, candidates[m].sample) for m in able}


def _column(scored: tuple[Spec, dict[int, MetricResult]]) -> Column:
    spec, results = scored
    return Column(spec, tuple(results), tuple(result.details for result in results.values()))


def _in_numbers(scored: tuple[Spec, dict], redrawn: np.ndarray, m: int) -> dict[str, np.ndarray]:
    """One metric of M models: scores, intervals, ranks, cost. Models that it cannot score have nan."""
    able, results = list(scored[1]), list(scored[1].values())
    column = {name: np.full(m, np.nan) for name in ("scores", "seconds", "memory")}
    column |= {name: np.full((m, 2), np.nan) for name in ("intervals", "rank_intervals")}
    column["tied"] = np.zeros(m, dtype=bool)
    if able:
        scores = _column(scored).values
        column["scores"][able] = scores
        column["seconds"][able] = [result.seconds for result in results]
        column["memory"][able] = [np.nan if result.peak_memory is None else result.peak_memory for result in results]
        column["intervals"][able], column["rank_intervals"][able] = intervals(scores, redrawn)
        column["tied"][able] = tied_with_best(scores, redrawn)
    column["ranks"] = ranks_of(column["scores"])
    return column


def intervals(scores: np.ndarray, redrawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """95 % intervals (M, 2) of the scores and of the ranks, from redrawn scores (B, M); nan if there are none."""
    if not len(redrawn):
        return np.full((len(scores), 2), np.nan), np.full((len(scores), 2), np.nan)
    return np.percentile(redrawn, [2.5, 97.5], axis=0).T, np.percentile(ranks_of(redrawn), [2.5, 97.5], axis=0).T


def tied_with_best(scores: np.ndarray, redrawn: np.ndarray) -> np.ndarray:
    """(M,) bool: the difference to the best model is within 1.96 standard deviations of its redrawn values.

    Without redrawn scores only equal ones are tied.
    """
    best = int(np.argmax(scores))
    behind = scores[best] - scores
    if not len(redrawn):
        return behind == 0
    spread = (redrawn[:, [best]] - redrawn).std(0, ddof=1)
    return behind <= 1.96 * spread


def _has_inputs(spec: Spec, candidate: Candidate) -> bool:
    sample = candidate.sample
    have = {"features": sample.x, "source_probs": sample.source_probs, "model": sample.model}
    classes = sample.y is not None or (len(spec.chain) == 1 and takes_numbers(spec.metric))
    return classes and all(have[need] is not None for need in spec.needs)


def _truth(truth: Any, names: tuple[str, ...]) -> np.ndarray | None:
    if truth is None:
        return None
    if isinstance(truth, Mapping):
        missing = [name for name in names if name not in truth]
        if missing:
            raise UserError(f"truth has no accuracy of {', '.join(missing)}; it has: {', '.join(map(str, truth))}")
        truth = [truth[name] for name in names]
    values = np.asarray(truth, dtype=float)
    if values.shape != (len(names),) or not np.isfinite(values).all():
        raise UserError(f"truth must be one finite accuracy for each of the {len(names)} models: {', '.join(names)}")
    return values


def _agreements(specs: Sequence[Spec], scores: np.ndarray, truth: np.ndarray, seed: int) -> dict[str, list[Agreement]]:
    """Of the metrics that score at least three models, and not all alike."""
    found = {}
    for k, spec in enumerate(specs):
        known = ~np.isnan(scores[:, k])
        if known.sum() > 2 and np.ptp(scores[known, k]) > 0:
            found[spec.name] = agreement(truth[known], scores[known, k], seed=seed)
    return found


def _notes(
    specs: Sequence[Spec], candidates: Sequence[Candidate], results: Sequence[Mapping[int, MetricResult]]
) -> tuple[str, ...]:
    """What each model lacks, where a metric asked for it, and the metrics' own warnings; each once."""
    said: dict[str, list[str]] = {}
    metrics = [spec.metric for spec in specs]
    asked = {need for spec in specs for need in needs(spec.metric)}
    wraps = any("ped" in dict(spec.chain) for spec in specs)
    for candidate in candidates:
        for note in candidate.notes:
            several = note == SEVERAL and not all(map(takes_numbers, metrics))
            if several or ("source classifier" in note and "source_probs" in asked) or ("reference" in note and wraps):
                said.setdefault(note, []).append(candidate.name)
    for spec, column in zip(specs, results, strict=True):
        for m, result in column.items():
            for warning in result.warnings:
                if "reference" not in warning:  # said above, of the model
                    said.setdefault(f"{spec.name}: {warning}", []).append(candidates[m].name)
    return tuple(f"{note} ({', '.join(names)})" for note, names in said.items())


def _details(results: Mapping[int, MetricResult], names: Sequence[str]) -> dict[str, Any]:
    return {names[m]: dict(result.diagnostics) for m, result in results.items()}


def _data_name(dataset: Any) -> str:
    return "" if dataset is None else str(getattr(dataset, "name", dataset))


def _plain(value: Any) -> Any:
    """What JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Agreement):
        return _plain(vars(value))
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value
