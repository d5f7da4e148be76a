"""Notes on a ranking's models and metrics: missing inputs, failures, warnings of the metrics."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from evaluation.features.zoo_members import unlike_sizes
from evaluation.ranking.inputs.candidates import Candidate
from evaluation.ranking.inputs.doubts import doubts, row_marks
from evaluation.ranking.inputs.source_marks import lines, to_record
from evaluation.ranking.ranking import FEWEST as FEWEST_IMAGES
from evaluation.ranking.scoring import MetricResult, Spec, takes_numbers
from evaluation.ranking.truth.agreement import FEWEST, Agreement
from evaluation.results.choice import level_scores
from evaluation.transferability import base
from evaluation.transferability.base import Sample
from sslkit.errors import UserError

LACKS = {
    "features": "no features: only metrics of the source classifier and of the network",
    "source_probs": "no source classifier: no LEEP, no NCE",
    "model": "no network: its size is not known",
    "untrained": "no features of the network with random weights: no KITE",
    "boxes": "no places of objects, which data=boxes:SET has: no TLogME",
}
NO_REFERENCE = (
    "no reference statistics: PED takes those of the task's own images; reference= takes a data set or a file"
)
NOT_KEPT = "the entry's folder cannot be written: its source head was fitted, and is fitted anew in the next ranking"
COMPARED = 3  # models, below which scores are not compared with the truth: two are in order or not
NO_CLASSES = "several labels an image, or fractions, and no classes: not defined for"


def lacking(spec: Spec, candidate: Candidate) -> list[str]:
    """Return the reasons why the metric cannot score the model; empty if it can."""
    sample = candidate.sample
    told = {need: f"no LEEP, no NCE: {reason}" for need, reason in candidate.lacks.items()}
    reasons = [told.get(need) or LACKS[need] for need in spec.needs if sample.given(need) is None]
    if spec.reads_reference and "reference" in candidate.lacks:
        reasons.append(f"no PED: {candidate.lacks['reference']}")
    if sample.y is None and not (len(spec.chain) == 1 and takes_numbers(spec.metric)):
        reasons.append(f"{NO_CLASSES} {spec.name}")
    return reasons


def notes(
    specs: Sequence[Spec],
    candidates: Sequence[Candidate],
    results: Sequence[Mapping[int, MetricResult]],
    failures: Sequence[Mapping[int, UserError]],
) -> tuple[str, ...]:
    """Return each note once, with the models concerned.

    results, failures: of each metric, by model index.
    """
    notes_by_model = [(note, candidate.name) for candidate in candidates for note in candidate.notes]
    notes_by_model += [
        (NOT_KEPT, candidate.name)
        for candidate in candidates
        if candidate.source is not None and not candidate.source.kept
    ]
    for spec, column, failed in zip(specs, results, failures, strict=True):
        for m, candidate in enumerate(candidates):
            notes_by_model += [
                (note, candidate.name) for note in _of_score(spec, candidate, column.get(m), failed.get(m))
            ]
    named: dict[str, dict[str, None]] = {}
    for note, name in notes_by_model:
        named.setdefault(note, {})[name] = None
    readers = [spec.name for spec in specs if "source_probs" in spec.needs]
    sources = {candidate.name: to_record(candidate.source) for candidate in candidates if candidate.source is not None}
    sizes = unlike_sizes({candidate.name: candidate.image_size for candidate in candidates})
    shared = filter(None, (_copies([candidate.sample for candidate in candidates]), sizes))
    return (*shared, *lines(sources, readers), *(f"{note} ({', '.join(names)})" for note, names in named.items()))


def _copies(samples: Sequence[Sample]) -> str:
    """Return a note on images that are copies of others: to every model their features are equal."""
    features = [sample.x for sample in samples if sample.x is not None]
    if not features:
        return ""
    n, distinct = len(features[0]), len(torch.unique(torch.stack(list(map(row_marks, features)), 1), dim=0))
    if distinct == n or 2 * distinct <= n:  # by far: networks that map different images to equal features
        return ""
    are = "is an exact copy of another one" if n - distinct == 1 else "are exact copies of others"
    return (
        f"{n - distinct:,} of the {n:,} images {are} (equal features): knn does not let copies vote for each other, "
        "other metrics count them"
    )


def _of_score(spec: Spec, candidate: Candidate, result: MetricResult | None, failure: UserError | None) -> list[str]:
    """Return the notes on one metric of one model."""
    if failure is not None:
        return [f"{spec.name} has no score: {failure}"]
    if result is None:
        return lacking(spec, candidate)
    shared = doubts(candidate.sample) if spec.reads_features else ()  # of the model, independent of the metric
    warnings = [warning for warning in result.warnings[len(shared) :] if warning != base.NO_REFERENCE]
    lines_of_model = [*shared, *(f"{spec.name}: {warning}" for warning in warnings)]
    alone = spec.reads_reference and candidate.sample.reference is None
    return [NO_REFERENCE, *lines_of_model] if alone else lines_of_model


def no_agreement(specs: Sequence[Spec], scores: np.ndarray, truth: np.ndarray) -> dict[str, str]:
    """Return the metrics that cannot be compared with the truth (M,), with the reason. scores: (M, K)."""
    reasons = {}
    for spec, column in zip(specs, scores.T, strict=True):
        has = ~np.isnan(column)
        if has.sum() < COMPARED:
            reasons[spec.name] = (
                f"no agreement with the truth: {COMPARED} models with a score are needed, not {has.sum()}"
            )
        elif np.ptp(level_scores(column[has])) == 0:
            reasons[spec.name] = "no agreement with the truth: all models have the same score"
        elif np.ptp(level_scores(truth[has])) == 0:
            reasons[spec.name] = "no agreement with the truth: all models have the same accuracy"
    return reasons


def no_interval(specs: Sequence[Spec], redrawn: Sequence[np.ndarray], n: int) -> tuple[str, ...]:
    """Return notes on scores without intervals, although images were redrawn: too few images, n, or none with a score.

    redrawn: of each metric its scores (B, m) on redrawn images.
    """
    silent = [
        spec.name for spec, drawn in zip(specs, redrawn, strict=True) if drawn.size and not np.isfinite(drawn).any()
    ]
    few = (
        (f"no intervals of scores and ranks, {n} images: it takes about {FEWEST_IMAGES}",) if n < FEWEST_IMAGES else ()
    )
    return *few, *(f"{name}: no intervals and no ties, as it has no score on half of the images" for name in silent)


def few_models(agreements: Mapping[str, Sequence[Agreement]]) -> tuple[str, ...]:
    """Return a note if an agreement with the truth has no interval because the models are too few."""
    few = {
        measure.name: measure.kind
        for column in agreements.values()
        for measure in column
        if measure.n < FEWEST.get(measure.name, 0)
    }
    kinds: dict[str, list[str]] = {}
    for name, kind in few.items():
        kinds.setdefault(kind, []).append(name)
    return tuple(f"{', '.join(names)}: {kind}" for kind, names in kinds.items())
