"""rank(zoo, dataset, metrics) -> Ranking: predict which of many models will fine-tune best, without fine-tuning."""

import datetime
import importlib.metadata
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.datasets import Reading, Split
from evaluation.features.zoo_members import Members, members, some_left
from evaluation.ranking.checks import OF_LABELS, OF_NUMBERS, check_metrics, check_ranking, truth_values
from evaluation.ranking.consensus import consensus, within
from evaluation.ranking.inputs.candidates import (
    SHARED,
    Candidate,
    Options,
    are_arrays,
    check_at_hand,
    of_arrays,
    of_models,
    settle_images,
)
from evaluation.ranking.inputs.references import Reference, open_reference
from evaluation.ranking.inputs.source_marks import groups, to_record
from evaluation.ranking.memory import return_freed_memory
from evaluation.ranking.notes import few_models, lacking, no_agreement, no_interval, notes
from evaluation.ranking.nulls import compare_nulls
from evaluation.ranking.ranking import Ranking, intervals, ranks_of, ties_with_best
from evaluation.ranking.resampling import Column, replicates
from evaluation.ranking.scoring import MetricResult, Spec, of_sample, parse
from evaluation.ranking.truth.agreement import Agreement, agreement
from evaluation.results.result import PACKAGES
from sslkit.backbones.words import PIXELS
from sslkit.data.image_options import VALUES
from sslkit.data.sources.named import reusable
from sslkit.errors import UserError
from sslkit.models.loading import PIXELS_SIDE, Loading
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime, silent

SAID = (
    "split",
    "max_images",
    "image_size",
    "in_chans",
    "precision",
    *VALUES,
    "source",
    "clusters",
)  # recorded in `made`; other options change no number

KNN = parse("knn")  # the accuracies behind the expected regret of the consensus


@public(*SHARED)
def rank(
    zoo: Any,
    dataset: Any = None,
    metrics: Sequence[str] | None = None,
    *,
    truth: Mapping[str, float] | Sequence[float] | None = None,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
    say: Callable[[str], None] = silent,
) -> Ranking:
    """Score every model of a zoo by every metric.

        ranking = evaluation.rank("runs/zoo", "path/to/images", ["knn", "logme"])
        print(ranking.table())
        ranking.best  # the name of the first model

    zoo: a folder of zoo entries, a list of models (`sslkit.load`), a mapping of names to models; or a mapping
        of names to Features or pairs (x, y) of the same images, without dataset and what is for models and data sets.
    dataset: see `evaluation.open_split`; an open split is taken as it is.
    metrics: of `evaluation.metrics()`, with options in brackets: `ped(lam=0.3)+logme`. None: `knn`, or `logme` for
        several labels or a number an image; the study of recipes/benchmarks found nothing better. If a model
        lacks an input (LEEP without a source head) or has invalid features, its score is nan, with a note.
    truth: {model: accuracy after fine-tuning}, or accuracies in the order of the models; adds the agreement.
    say: called with a line when something is done.
    Intervals: see `evaluation.ranking.resampling.replicates`. Source heads: see `source_head` in
    evaluation/ranking/inputs/source_heads.py. The reference of PED: see `open_reference` in
    evaluation/ranking/inputs/references.py.
    Damaged entries of a folder, and models with invalid features, are left out and named in `left_out`.
    Raises UserError before any extraction for unknown metrics, options, models and data, and for a truth that lacks a
    model; and if no model is left.
    """
    return rank_models(zoo, dataset, metrics, truth, options, loading, reading, replace(runtime, say=say))


def rank_models(
    zoo: Any,
    dataset: Any,
    metrics: Sequence[str] | None,
    truth: Mapping[str, float] | Sequence[float] | None,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> Ranking:
    """The ranking of `rank`; the device is that of the options."""
    runtime = replace(runtime, device=options.device)
    if are_arrays(zoo):
        check_at_hand(options, loading, reading, replace(runtime, device=Runtime.device))
    specs = check_ranking(metrics, options, runtime)
    zoo, dataset = _check_zoo(zoo, dataset), reusable(dataset, reading.columns)
    if isinstance(dataset, Split) and options.split == Options.split:
        options = replace(options, split=dataset.split)
    accuracies, of_reference, nulls = truth_values(truth, tuple(zoo)), (), []
    if dataset is None:
        made = Members({candidate.name: candidate for candidate in of_arrays(zoo, runtime)})
    else:
        options = settle_images(options, every=isinstance(dataset, Split))
        options = replace(options, reference=open_reference(options.reference, reading))
        needs = {need for spec in specs for need in spec.needs}
        # of their own size: features of 224 x 224 pixels would fill the memory
        controls = {PIXELS: f"{PIXELS}(image_size={PIXELS_SIDE})"} if PIXELS not in zoo else {}
        beside = Members({**zoo, **controls}, zoo.left_out, [*zoo.listed, *controls])
        made = of_models(beside, dataset, needs, options, loading, reading, runtime)
        nulls = [made.pop(name) for name in controls if name in made]
        some_left(made)
        if any(candidate.sample.reference is not None for candidate in made.values()):
            of_reference = options.reference.notes()
    candidates = list(made.values())
    if metrics is None and candidates[0].sample.y is None:
        specs = check_metrics(OF_NUMBERS if candidates[0].sample.targets.shape[1] == 1 else OF_LABELS)
    if accuracies is not None:
        accuracies = accuracies[[name in made for name in zoo]]
    ranking = _rank_candidates(specs, candidates, nulls, accuracies, of_reference, options.bootstrap, runtime)
    provenance = _provenance(options, loading, reading, runtime)
    return replace(ranking, data=data_name(dataset), left_out=made.left_out, made=provenance)


def _rank_candidates(
    specs: Sequence[Spec],
    candidates: Sequence[Candidate],
    nulls: Sequence[Candidate],
    truth: np.ndarray | None,
    of_reference: tuple[str, ...],
    bootstrap: int,
    runtime: Runtime,
) -> Ranking:
    """Score the candidates, and compare them. nulls: are scored by kNN. truth: (M,) accuracies. of_reference: notes."""
    names, n, seed = tuple(candidate.name for candidate in candidates), len(candidates[0].sample), runtime.seed
    runtime.say(f"{', '.join(_names(specs))} on {len(candidates)} models")
    scored, failures = _score(specs if KNN.name in _names(specs) else [*specs, KNN], candidates)
    by_knn = next(results for spec, results in scored if spec.name == KNN.name)
    accuracies_by_knn = np.array([by_knn[k].score if k in by_knn else np.nan for k in range(len(candidates))])
    ((_, of_nulls),), _ = _score([KNN], nulls)
    controls = {null.name: of_nulls[k] for k, null in enumerate(nulls) if k in of_nulls}
    scored, failures = scored[: len(specs)], failures[: len(specs)]
    runtime.say(f"intervals: {bootstrap} redrawn sets of images")
    redrawn = replicates(list(map(_column, scored)), [candidate.sample for candidate in candidates], bootstrap, seed)
    sources = {candidate.name: to_record(candidate.source) for candidate in candidates if candidate.source is not None}
    apart = [groups(sources if "source_probs" in spec.needs else {}, names) for spec in specs]
    columns = [_in_numbers(*row, len(candidates), n) for row in zip(scored, redrawn, apart, strict=True)]
    stacked = {name: np.stack([column[name] for column in columns], 1) for name in columns[0]}
    # groups that a metric cannot compare are level
    comparable = np.stack([within(group, column) for group, column in zip(apart, stacked["scores"].T, strict=True)], 1)
    again = [
        within(group[list(scores_of[1])], drawn) for group, scores_of, drawn in zip(apart, scored, redrawn, strict=True)
    ]
    unheld = {} if truth is None else no_agreement(specs, comparable, truth)
    agreements = {} if truth is None else _agreements(specs, comparable, truth, unheld, seed)
    told = (*notes(specs, candidates, [results for _, results in scored], failures), *of_reference)
    told += no_interval(specs, redrawn, n) if bootstrap else ()
    measured = None if candidates[0].sample.y is not None else math.nan  # agreements are those of one class an image
    return Ranking(
        data="",
        n=n,
        models=names,
        metrics=_names(specs),
        consensus=consensus(_names(specs), comparable, again, accuracies_by_knn, agreement=measured, seed=seed),
        notes=told + tuple(f"{metric}: {why}" for metric, why in unheld.items()) + few_models(agreements),
        nulls=compare_nulls(by_knn, candidates, controls),
        truth=truth,
        agreement=agreements,
        details={
            spec.name: {names[m]: dict(result.diagnostics) for m, result in results.items()} for spec, results in scored
        },
        sources=sources,
        costs=tuple(candidate.multiply_adds for candidate in candidates),
        **stacked,
    )


def _check_zoo(zoo: Any, dataset: Any) -> Members[Any]:
    """Return names and models, or names and given features. Raises UserError."""
    at_hand = are_arrays(zoo)
    if at_hand and dataset is not None:
        raise UserError("give features without a data set, or models with one")
    if not at_hand and dataset is None:
        raise UserError("name the task to rank for: dataset=, a data set or a folder of images with labels")
    return members(zoo)


def _score(
    specs: Sequence[Spec], candidates: Sequence[Candidate]
) -> tuple[list[tuple[Spec, dict[int, MetricResult]]], list[dict[int, UserError]]]:
    """Return each metric's results, and its errors for invalid features, by model index.

    Model by model: the sums that metrics share, (D, D) and more, are dropped before the next one's.
    """
    results: list[dict[int, MetricResult]] = [{} for _ in specs]
    failed: list[dict[int, UserError]] = [{} for _ in specs]
    for m, candidate in enumerate(candidates):
        sample = replace(candidate.sample)
        for k, spec in enumerate(specs):
            if lacking(spec, candidate):
                continue
            return_freed_memory()  # so that the memory of each score is measured
            try:
                results[k][m] = of_sample(spec, sample)
            except UserError as error:  # caused by the features: the options have been checked before
                failed[k][m] = error
    return list(zip(specs, results, strict=True)), failed


def _names(specs: Sequence[Spec]) -> tuple[str, ...]:
    return tuple(spec.name for spec in specs)


def _column(scored: tuple[Spec, dict[int, MetricResult]]) -> Column:
    spec, results = scored
    return Column(spec, tuple(results), tuple(result.details for result in results.values()))


def _in_numbers(
    scored: tuple[Spec, dict], redrawn: np.ndarray, apart: np.ndarray, m: int, n: int
) -> dict[str, np.ndarray]:
    """Return scores, intervals, ranks and cost of one metric for M models, with nan for models without a score.

    apart: (M,) the group of each model; ranks and ties are within it. n: images.
    """
    able, results = np.array(list(scored[1]), dtype=np.int64), list(scored[1].values())
    column = {name: np.full(m, np.nan) for name in ("scores", "seconds", "memory", "ranks")}
    column |= {name: np.full((m, 2), np.nan) for name in ("intervals", "rank_intervals")}
    column["tied"] = np.zeros(m, dtype=bool)
    if not len(able):
        return column
    scores = _column(scored).values
    column["scores"][able] = scores
    column["seconds"][able] = [result.seconds for result in results]
    column["memory"][able] = [np.nan if result.peak_memory is None else result.peak_memory for result in results]
    for group in np.unique(apart[able]):
        members = np.flatnonzero(apart[able] == group)
        models, drawn = able[members], redrawn[:, members]
        column["intervals"][models], column["rank_intervals"][models] = intervals(scores[members], drawn, n)
        column["tied"][models] = ties_with_best(scores[members], drawn)
        column["ranks"][models] = ranks_of(scores[members])
    return column


def _agreements(
    specs: Sequence[Spec], scores: np.ndarray, truth: np.ndarray, without: Mapping[str, str], seed: int
) -> dict[str, list[Agreement]]:
    agreements = {}
    for k, spec in enumerate(specs):
        has_score = ~np.isnan(scores[:, k])
        if spec.name not in without:
            agreements[spec.name] = agreement(truth[has_score], scores[has_score, k], seed=seed)
    return agreements


def _provenance(options: Options, loading: Loading, reading: Reading, runtime: Runtime) -> dict[str, Any]:
    """Return the date, the options that change a number, where they are not as usual, and the versions.

    PED's reference is the word that a command takes.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    values = {**vars(options), **vars(loading), **vars(reading), "precision": runtime.precision}
    usual = {**vars(Loading()), **vars(Reading()), **vars(Runtime()), **vars(Options())}
    unusual = {name: values[name] for name in SAID if values[name] != usual[name]}
    unusual |= reading.columns.words
    if isinstance(options.reference, Reference):
        unusual["reference"] = options.reference.asked
    always = {"seed": runtime.seed, "bootstrap": options.bootstrap, "device": options.device}
    return {"date": now, **always, **unusual, "versions": {name: importlib.metadata.version(name) for name in PACKAGES}}


def data_name(dataset: Any) -> str:
    """Return the name of a task: the word that asked for it, or its own; "" for none."""
    if dataset is None or isinstance(dataset, (str, Path)):
        return str(dataset or "")
    return str(getattr(dataset, "name", dataset))
