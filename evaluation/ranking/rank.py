"""rank(zoo, dataset, metrics) -> Ranking: which of many models will fine-tune best, before any is fine-tuned."""

import datetime
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from evaluation.features.zoo_members import Members, members
from evaluation.ranking.agreement import Agreement, agreement
from evaluation.ranking.candidates import Candidate, are_arrays, checked_keywords, of_arrays, of_models
from evaluation.ranking.checks import BOOTSTRAP, METRICS, checked_metrics, truth_values
from evaluation.ranking.notes import lacking, no_agreement, notes
from evaluation.ranking.resampling import Column, replicates
from evaluation.ranking.scoring import MetricResult, Spec, of_sample
from evaluation.results.choice import levelled
from evaluation.results.result import PACKAGES
from sslkit.allocator import return_freed_memory
from sslkit.errors import UserError

SAID = ("split", "max_images", "image_size", "in_chans", "precision")  # of how it was made; the rest changes no number


@dataclass(frozen=True, eq=False)
class Ranking:
    """M models by K metrics on one task.

    data: the task; n: its images. models: M names. metrics: K names.
    scores: (M, K), nan where a model has not what the metric needs, or the metric refuses its features (see notes).
    intervals: (M, K, 2) 95 % over images, nan without.
    ranks: (M, K) 1 is best, equal scores share the mean. rank_intervals: (M, K, 2) 95 % over images.
    tied: (M, K) bool: not to be told from the metric's best model by these images.
    mean_rank: (M,) over the metrics that score every model that any does (see `borda`), nan if none does.
    seconds, memory: (M, K) cost of each score; what metrics share is counted with the first. bytes, nan if unknown.
    notes: what to know of models and metrics. truth: (M,) accuracies, or None; agreement: {metric: numbers} with it.
    left_out: why each other member of the zoo is not ranked, by name.
    made: how: date, seed, bootstrap, device, the split and the sizes that were asked for, versions.
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
    made: Mapping[str, Any] = field(default_factory=dict, repr=False)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def order(self) -> list[str]:
        """Models, best first by mean rank; models without one last."""
        return [self.models[m] for m in np.argsort(self.mean_rank, kind="stable")]

    @property
    def best(self) -> str:
        return self.order[0]

    def table(self, style: str = "text") -> str:
        """See `evaluation.ranking.table.table`."""
        from evaluation.ranking.table import table

        return table(self, style)

    def to_json(self, path: str | Path) -> Path:
        """Write all of it, whole or not at all."""
        from evaluation.ranking.file import write_ranking

        return write_ranking(self, Path(path))

    @classmethod
    def from_json(cls, path: str | Path) -> "Ranking":
        """What `to_json` wrote. Raises UserError for a file that is no ranking."""
        from evaluation.ranking.file import read_ranking

        return read_ranking(Path(path))


def rank(
    zoo: Any,
    dataset: Any = None,
    metrics: Sequence[str] = METRICS,
    *,
    truth: Mapping[str, float] | Sequence[float] | None = None,
    bootstrap: int = BOOTSTRAP,
    seed: int = 0,
    device: str = "cpu",
    say: Callable[[str], None] = lambda line: None,
    **how: Any,
) -> Ranking:
    """Score every model of a zoo by every metric.

    zoo: a folder of zoo entries, a list of models (`evaluation.load_model`), a mapping of names to models; or a mapping
        of names to Features or pairs (x, y) of the same images, and neither dataset nor `how`.
    dataset: see `evaluation.open_split`; its split `split="train"` is used.
    metrics: of `evaluation.metrics()`, with options in brackets: `ped(lam=0.3)+logme`. A metric that a model has not
        the inputs for (LEEP without a source classifier), or whose features it refuses, gives nan for it, and a note.
    truth: {model: accuracy after fine-tuning}, or accuracies in the order of the models; adds the agreement.
    bootstrap: redrawn sets of images behind intervals and ties, at least 2, or 0 for none; see
        `evaluation.ranking.resampling.replicates`.
    seed, device: of the metrics. how: split, max_images, root, image_size and the options of `evaluation.extract`.
    Entries of a folder that are damaged, and models that give no sound features, are left out and named in `left_out`.
    Raises UserError before anything is extracted for unknown metrics, options, models and data, and for a truth without
    one of the models; and where no model is left.
    """
    specs = checked_metrics(metrics, bootstrap=bootstrap, seed=seed, device=device)
    zoo = _checked_zoo(zoo, dataset, how)
    accuracies = truth_values(truth, tuple(zoo))
    found = _candidates(zoo, dataset, seed=seed, device=device, say=say, **how)
    names, candidates = tuple(found), list(found.values())
    if accuracies is not None:
        accuracies = accuracies[[name in found for name in zoo]]
    scored, failures = [], []
    for spec in specs:
        say(f"{spec.name} on {len(candidates)} models")
        results, failed = _scored(spec, candidates)
        scored.append((spec, results))
        failures.append(failed)
    say(f"intervals: {bootstrap} redrawn sets of images")
    redrawn = replicates([_column(one) for one in scored], [one.sample for one in candidates], bootstrap, seed)
    columns = [_in_numbers(one, again, len(candidates)) for one, again in zip(scored, redrawn, strict=True)]
    stacked = {name: np.stack([column[name] for column in columns], 1) for name in columns[0]}
    said = notes(specs, candidates, [results for _, results in scored], failures)
    unheld = {} if accuracies is None else no_agreement(specs, stacked["scores"])
    return Ranking(
        data=_data_name(dataset),
        n=len(candidates[0].sample),
        models=names,
        metrics=tuple(spec.name for spec in specs),
        mean_rank=borda(stacked["ranks"]),
        notes=said + tuple(f"{metric}: {why}" for metric, why in unheld.items()),
        truth=accuracies,
        agreement={} if accuracies is None else _agreements(specs, stacked["scores"], accuracies, unheld, seed),
        details={spec.name: _details(results, names) for spec, results in scored},
        left_out=found.left_out,
        made=_made(seed=seed, bootstrap=bootstrap, device=device, **{name: how[name] for name in SAID if name in how}),
        **stacked,
    )


def borda(ranks: np.ndarray) -> np.ndarray:
    """(M,) mean rank. ranks: (M, K), nan where a metric has no score.

    Models that no metric ranks are left out, with nan; of the others the mean is over the metrics that rank each of
    them, so that all means are of the same metrics. nan for all if there is no such metric.
    """
    found = np.full(len(ranks), np.nan)
    ranked = ~np.isnan(ranks).all(1)
    whole = ranks[ranked][:, ~np.isnan(ranks[ranked]).any(0)]
    if whole.size:
        found[ranked] = whole.mean(1)
    return found


def ranks_of(scores: np.ndarray) -> np.ndarray:
    """(..., M) ranks, 1 for the highest, equal ones (but for rounding) sharing the mean; nan stays nan."""
    found = np.full(scores.shape, np.nan)
    for row in np.ndindex(scores.shape[:-1]):
        known = ~np.isnan(scores[row])
        found[row][known] = rankdata(-levelled(scores[row][known]))
    return found


def _checked_zoo(zoo: Any, dataset: Any, how: Mapping[str, Any]) -> Members[Any]:
    """Names and models, or names and features at hand. Raises UserError."""
    at_hand = are_arrays(zoo)
    checked_keywords(how, at_hand)
    if at_hand and dataset is not None:
        raise UserError("give features at hand without a data set, or models with one")
    if not at_hand and dataset is None:
        raise UserError("name the task to rank for: dataset=, a data set or a folder of images with labels")
    return members(zoo)


def _candidates(zoo: Any, dataset: Any, *, seed: int, device: str, say: Callable, **how: Any) -> Members[Candidate]:
    if dataset is None:
        return Members({one.name: one for one in of_arrays(zoo, seed, device)})
    return of_models(zoo, dataset, how.pop("split", "train"), seed=seed, device=device, say=say, **how)


def _scored(spec: Spec, candidates: Sequence[Candidate]) -> tuple[dict[int, MetricResult], dict[int, UserError]]:
    """A metric's results, and why there is none where it refused the features, by the number of the model."""
    results, failed = {}, {}
    for m, candidate in enumerate(candidates):
        if lacking(spec, candidate):
            continue
        return_freed_memory()  # so that the memory of each score is seen
        try:
            results[m] = of_sample(spec, candidate.sample)
        except UserError as error:  # of these features: the options have been tried before
            failed[m] = error
    return results, failed


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

    Without redrawn scores (at least 2) only those that are equal but for rounding are tied. A model without a score
    (nan) is tied with none.
    """
    if np.isnan(scores).all():
        return np.zeros(len(scores), dtype=bool)
    best = int(np.nanargmax(scores))
    even = levelled(scores)
    equal = even == even[best]
    behind = scores[best] - scores
    if len(redrawn) < 2:
        return equal
    spread = (redrawn[:, [best]] - redrawn).std(0, ddof=1)
    return equal | (behind <= 1.96 * spread)


def _agreements(
    specs: Sequence[Spec], scores: np.ndarray, truth: np.ndarray, without: Mapping[str, str], seed: int
) -> dict[str, list[Agreement]]:
    found = {}
    for k, spec in enumerate(specs):
        known = ~np.isnan(scores[:, k])
        if spec.name not in without:
            found[spec.name] = agreement(truth[known], scores[known, k], seed=seed)
    return found


def _details(results: Mapping[int, MetricResult], names: Sequence[str]) -> dict[str, Any]:
    return {names[m]: dict(result.diagnostics) for m, result in results.items()}


def _made(**chosen: Any) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return {"date": now, **chosen, "versions": {name: importlib.metadata.version(name) for name in PACKAGES}}


def _data_name(dataset: Any) -> str:
    if dataset is None or isinstance(dataset, (str, Path)):
        return str(dataset or "")
    return str(getattr(dataset, "name", dataset))
