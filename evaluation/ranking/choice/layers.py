"""Rank by intermediate layers too: the best layer of each model, corrected for having been chosen.

found = best_layers(models, task, "knn")
found[0].chosen, found[0].corrected, found[0].own
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evaluation.datasets import Reading, Split
from evaluation.features.extraction import features_of
from evaluation.features.levels import open_levels
from evaluation.features.table import Features
from evaluation.features.zoo_members import load_member
from evaluation.ranking.inputs.samples import ON_CPU, as_sample
from evaluation.ranking.resampling import half, of_part
from evaluation.ranking.scoring import Spec, parse
from evaluation.results.choice import level_scores
from evaluation.transferability.base import Sample
from sslkit.errors import UserError
from sslkit.files.writing import write_text
from sslkit.models.model import Model
from sslkit.models.pooling import OWN, readable_words
from sslkit.runtime.context import Runtime
from sslkit.terminal.tables import align

SPLITS = 10  # random divisions of the images into halves: a round number
FILE = "-layers.json"  # end of the name of the layers' file, beside that of the ranking


@dataclass(frozen=True, eq=False)
class Layers:
    """The layers of one model by one metric.

    names: of L layers, the last one OWN. scores: (L,) on all images, higher is better; nan where the metric has none.
    corrected: mean over 2 SPLITS halves of the score of the layer that is best on the other half of the images.
    own: the same for the network's own features. better: share of the halves in which the chosen layer scores higher
    than these.
    """

    model: str
    names: tuple[str, ...]
    scores: np.ndarray
    corrected: float
    own: float
    better: float

    @property
    def chosen(self) -> str:
        """The best layer on all images; of equal ones the last."""
        return self.names[_best(self.scores)]


def best_layers(
    models: Mapping[str, Any],
    task: Split,
    metric: str,
    reading: Reading,
    runtime: Runtime,
    splits: int = SPLITS,
) -> list[Layers]:
    """Score every layer of every model, and ViTs also by every pooling.

    models: by name, see `features.zoo_members.load_member`. task: labelled images, one class each.
    metric: one that reads features and scores a single model.
    splits: divisions into halves.
    The best of L noisy scores is too high. So the layer is chosen on one half of each class and scored on the other,
    and a ranking of models by that is not one of their numbers of layers.
    Returns the models by their corrected score, first the best.
    Raises UserError for a metric without a score of one model's features, and for several labels an image.
    """
    spec = check_metric(metric)
    check_task(task)
    by_model = []
    for name, member in models.items():
        model = load_member(member)
        words = readable_words(model.backbone)
        names = (*words, OWN)
        runtime.say(f"layers of {name}: {', '.join(names)}")
        samples = [
            as_sample(features, runtime=replace(ON_CPU, seed=runtime.seed))
            for features in _by_layer(model, words, task, reading, runtime)
        ]
        by_model.append(of_samples(name, names, samples, spec, splits, seed=runtime.seed))
    return sorted(by_model, key=lambda one: -np.nan_to_num(one.corrected, nan=-np.inf))


def check_metric(metric: str) -> Spec:
    """Parse a metric that scores the features of one model. Raises UserError for others."""
    spec = parse(metric, given=True)
    if set(spec.needs) != {"features"} or not spec.reads_features or spec.over_zoo is not None:
        raise UserError(f"layers: {metric} does not score the features of one model alone; give knn or logme")
    return spec


def check_task(task: Split) -> None:
    """Raise UserError for a task with several labels an image."""
    if task.y.ndim != 1:
        raise UserError(f"layers: {task.name} has several labels an image; layers are compared by one class each")


def of_samples(
    name: str, names: Sequence[str], samples: Sequence[Sample], spec: Spec, splits: int = SPLITS, *, seed: int
) -> Layers:
    """Return the layers of a model from their features, of the same images. samples: L, in the order of the names."""
    halves = []
    for number in range(splits):
        rows = half(samples[0], seed, number, largest=len(samples[0]))
        others = torch.ones(len(samples[0]), dtype=torch.bool)
        others[rows] = False
        parts = (rows, others.nonzero()[:, 0])
        halves.append(
            [[of_part(spec, sample.take(rows_of_half)).value for sample in samples] for rows_of_half in parts]
        )
    both = np.array(halves)  # (splits, 2, L)
    chosen, elsewhere = both.reshape(-1, len(samples)), both[:, ::-1].reshape(-1, len(samples))
    own_scores = elsewhere[:, -1]
    picked = np.array([there[_best(here)] for here, there in zip(chosen, elsewhere, strict=True)])
    picked = np.where(np.isnan(picked), own_scores, picked)  # a half on which the metric refuses the chosen layer
    better = float((picked > own_scores).mean())
    whole = np.array([of_part(spec, sample).value for sample in samples])
    return Layers(name, tuple(names), whole, float(picked.mean()), float(own_scores.mean()), better)


def _by_layer(
    model: Model, words: Sequence[str], task: Split, reading: Reading, runtime: Runtime
) -> Iterator[Features]:
    """Yield the features of each layer, which one pass gives, and those that the network pools itself."""
    if words:
        levels = open_levels(model, words)
        features = features_of(levels.model, task, reading, runtime)
        yield from (replace(features, x=features.x[:, columns]) for columns in levels.columns.values())
    yield features_of(model, task, reading, runtime)


def _best(scores: np.ndarray) -> int:
    """Return the index of the highest score, of equal ones the last; the last if none is known."""
    if np.isnan(scores).all():
        return len(scores) - 1
    level = level_scores(np.where(np.isnan(scores), -np.inf, scores))
    return int(np.flatnonzero(level == level.max())[-1])


def table(found: Sequence[Layers], metric: str) -> str:
    """Return the table: the models in this order, with every layer's score on all images."""
    rows = [["model", "best layer", metric, f"own {metric}", "better in", "layers on all images"]]
    for of_model in found:
        each = "  ".join(f"{name} {score:.3g}" for name, score in zip(of_model.names, of_model.scores, strict=True))
        numbers = [f"{of_model.corrected:.4g}", f"{of_model.own:.4g}", f"{100 * of_model.better:.0f} %"]
        rows.append([of_model.model, of_model.chosen, *numbers, each])
    return align(rows)


def write(found: Sequence[Layers], metric: str, path: Path) -> Path:
    """Write the layers as JSON, atomically, and return the path."""
    models = {
        of_model.model: {
            "chosen": of_model.chosen,
            "corrected": _number(of_model.corrected),
            "own": _number(of_model.own),
            "better": of_model.better,
            "layers": {name: _number(score) for name, score in zip(of_model.names, of_model.scores, strict=True)},
        }
        for of_model in found
    }
    write_text(path, json.dumps({"metric": metric, "models": models}, indent=1, allow_nan=False) + "\n")
    return path


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
