"""The members of a zoo as a ranking sees them: each one's features of the same images, ready to be scored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.datasets import Split, open_split
from evaluation.extraction import extract
from evaluation.features import Features
from evaluation.models import LoadedModel, load_model
from evaluation.samples import as_sample
from evaluation.source_probs import source_probs
from evaluation.splits import draw_keys
from evaluation.subsets import label_subset
from evaluation.transferability.base import Sample
from sslkit import zoo as zoos
from sslkit.errors import UserError

SEVERAL = "several labels an image: only logme and parc are defined"


@dataclass(frozen=True, eq=False)
class Candidate:
    """One model on the task. name: for tables. sample: what metrics see. notes: what to know of it."""

    name: str
    sample: Sample = field(repr=False)
    notes: tuple[str, ...] = ()


def of_arrays(zoo: Mapping[str, Any], seed: int = 0, device: str = "cpu") -> list[Candidate]:
    """Candidates from features at hand. zoo: name -> Features, or a pair (x, y), all of the same images."""
    found = []
    for name, given in zoo.items():
        x, y = (given, None) if isinstance(given, Features) else given
        found.append(Candidate(name, as_sample(x, y, seed=seed, device=device)))
    return _same_images(found)


def of_models(
    zoo: Any,
    dataset: Any,
    split: str = "train",
    *,
    max_images: int | None = None,
    root: str | Path = "data",
    image_size: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    say: Callable[[str], None] = lambda line: None,
    **how: Any,
) -> list[Candidate]:
    """Candidates from models: features are extracted, or read from the cache.

    zoo: a folder of zoo entries, or a list of what `evaluation.load_model` takes, folders of entries among them; or a
        mapping of names to such models.
    max_images: at most so many, the same number of each class, drawn by (seed, names); None: all.
    how: see `evaluation.extract` (cache, precision, batch_size, workers, ...). Raises UserError.
    """
    models = {name: load_model(one, image_size=image_size) for name, one in members(zoo).items()}
    task = sampled(open_split(dataset, split, root=root), max_images, seed)
    found = []
    for name, model in models.items():
        say(f"features of {len(task):,} images of {task.name}: {name}")
        features = extract(model, task, task.split, **how)
        found.append(_candidate(name, model, features, seed, device))
    return _same_images(found)


def members(zoo: Any) -> dict[str, Any]:
    """Names and models of a zoo. Raises UserError for an empty one and for two members of one name."""
    if isinstance(zoo, Mapping):
        return dict(zoo)
    given = zoo if isinstance(zoo, Sequence) and not isinstance(zoo, str) else [zoo]
    found: dict[str, Any] = {}
    for one in given:
        for name, model in _members_of(one):
            if name in found:
                raise UserError(f"two members of the zoo are called {name!r}; give a mapping {{name: model}}")
            found[name] = model
    if not found:
        raise UserError(f"there is no finished entry in {zoo}; recipes/train.py makes one")
    return found


def _members_of(one: Any) -> list[tuple[str, Any]]:
    folder = Path(one) if isinstance(one, (str, Path)) else None
    if folder is not None and folder.is_dir() and not (folder / zoos.CARD).is_file():
        return [(entry.folder.name, entry) for entry in zoos.open(folder)]
    if isinstance(one, (LoadedModel, zoos.ZooEntry)):
        return [(one.name if isinstance(one, LoadedModel) else one.folder.name, one)]
    if folder is not None:
        return [(folder.name if folder.is_dir() else str(one), one)]
    return [(type(one).__name__, one)]


def sampled(task: Split, max_images: int | None, seed: int) -> Split:
    """The labelled images of a split, or `max_images` of them, the same number of each class.

    Of images with several labels each, `max_images` are drawn from all. Raises UserError for too few.
    """
    if task.y.ndim != 1:
        keys = draw_keys(task.ids, seed, "images of a ranking")
        return task if max_images is None else task.take(np.sort(np.argsort(keys, kind="stable")[:max_images]))
    rows = np.flatnonzero(task.y >= 0)
    if max_images is not None and max_images < len(rows):
        if max_images < 2 * len(np.unique(task.y[rows])):
            need = 2 * len(np.unique(task.y[rows]))
            raise UserError(f"max_images={max_images} is less than two for each class of {task.name}: at least {need}")
        rows = label_subset(task.y, task.ids, task.classes, max_images / len(rows), seed)
    return task if len(rows) == len(task) else task.take(rows)


def _candidate(name: str, model: LoadedModel, features: Features, seed: int, device: str) -> Candidate:
    notes = []
    probs = None if model.classifier is None else source_probs(model, features)
    if probs is None:
        notes.append("no source classifier: no LEEP, no NCE")
    reference = _reference(model)
    if reference is None:
        notes.append("no reference statistics: PED takes those of the task's own images")
    labels = None
    if features.y.ndim == 2:
        labels = (features.y == 1).astype(np.float64)
        notes.append(SEVERAL)
    given = {"source_probs": probs, "reference": reference, "model": model.net}
    sample = as_sample(features, labels, **given, seed=seed, device=device)
    return Candidate(name, sample, tuple(notes))


def _reference(model: LoadedModel) -> tuple[list[float], list[float]] | None:
    """Mean and std of the features on what the model was trained on, from its card."""
    known = model.entry.card.get("features") if model.entry else None
    return (known["mean"], known["std"]) if known and "mean" in known else None


def _same_images(candidates: list[Candidate]) -> list[Candidate]:
    if not candidates:
        raise UserError("there is no model to rank")
    first = candidates[0]
    for other in candidates[1:]:
        same = first.sample.y is None or (
            len(first.sample) == len(other.sample) and bool((first.sample.y == other.sample.y).all())
        )
        if not same:
            raise UserError(
                f"{first.name} and {other.name} were not given the same labels in the same order: a ranking compares "
                "models on the same images"
            )
    return candidates
