"""The source head of each model: its own, or one fitted once to its pretraining data and kept beside the entry.

found = source_head(model)                       # or source="clusters"; raises UserError where there is none
found.layers(features), found.kind, found.classes, found.data
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from torch import nn

from evaluation.datasets import names, open_split, splits_of
from evaluation.datasets._splits import draw_keys, held_out
from evaluation.datasets._subsets import label_subset
from evaluation.datasets.base import Split
from evaluation.features.extraction import extract
from evaluation.features.models import LoadedModel
from evaluation.learners.linear_heads import Scaling
from evaluation.learners.linear_parts import Part
from evaluation.learners.logistic import Probe
from evaluation.learners.strengths import fit, problem, scores_of
from sslkit.data.arrays import ArrayImages
from sslkit.data.sources import open_images, splits
from sslkit.errors import UserError
from sslkit.files import exclusive
from sslkit.zoo.entry import ZooEntry
from sslkit.zoo.heads import CLUSTERS, FOLDER, LABELS, PROTOTYPES, Head, path

NONE, OWN = "none", "classifier"
SOURCES = (PROTOTYPES, LABELS, CLUSTERS, NONE)
CLUSTER_COUNT = 100  # the same for all data sets, so that LEEP compares models of several
IMAGES, PER_CLASS = 10_000, 20  # images to fit a head on, at most; but so many of each class
STRENGTHS = tuple(10.0**power for power in range(-5, 3))  # of the cross-entropy against the penalty
# Half the time of the tolerance of `linear`'s search, and probabilities within 0.01 of it in the mean, summed over the
# classes: a head says what an image looks like, it is no measured accuracy.
FIT = {"tol": 5e-3, "max_iter": 200, "promise": 1e-5}
ROUNDS = 25  # of k-means


@dataclass(frozen=True, eq=False)
class SourceHead:
    """Layers from a model's features (N, F) to the logits (N, S) of its source classes.

    kind: "prototypes", "labels", "clusters", or "classifier" of a model from outside a zoo. classes: S.
    data: the pretraining data. made: how it was made, in words. kept: False if it could not be stored.
    """

    layers: nn.Module = field(repr=False)
    kind: str
    classes: int
    data: str
    made: str
    kept: bool = True


def source_head(
    model: LoadedModel,
    source: str | None = None,
    clusters: int = CLUSTER_COUNT,
    say: Callable[[str], None] = lambda line: None,
    **how: Any,
) -> SourceHead:
    """Return the source head of a model.

    source: "prototypes" or "labels" that its training has kept, or "labels" or "clusters" of its pretraining data, on
        which a linear classifier is fitted once and kept in the entry's folder `heads`; "none". None: its own
        prototypes or labels, else those of the data, else clusters. A model outside a zoo has its own classifier only.
    clusters: number of them. say: for a line of progress. how: options of `evaluation.extract`.
    Raises UserError, with the reason and a remedy, if the model has no such head.
    """
    if source == NONE:
        raise UserError("source=none: no source head")
    if model.entry is None:
        return _own(model)
    entry = ZooEntry.load(model.entry.folder)  # another task of this ranking may have added a head
    kept, name = _kept_heads(entry), f"{CLUSTERS}-{clusters}"
    for own in (PROTOTYPES, LABELS):
        if source in (own, None) and own in kept:
            return _kept(model, entry, own)
    if source == PROTOTYPES:
        raise UserError(f"its training has kept no prototypes: {_remedy(kept)}")
    if name in kept and (source == CLUSTERS or (source is None and not kept[name].get("labelled", True))):
        return _kept(model, entry, name)
    whole = _pretraining(entry, kept)
    labelled = has_labels(whole)
    if source == LABELS and not labelled:
        raise UserError(f"its pretraining data {whole.name} has no two classes of one label an image: source=clusters")
    kind, name = (LABELS, LABELS) if labelled and source != CLUSTERS else (CLUSTERS, name)
    return _fitted_once(model, name, lambda: _fitted(model, whole, kind, name, clusters, say, how))


def checked_source(source: Any, clusters: Any) -> None:
    """Raise UserError for an unknown source and a number of clusters below 2."""
    if source is not None and source not in SOURCES:
        raise UserError(f"source={source!r} must be one of {', '.join(SOURCES)}, or null")
    if not isinstance(clusters, int) or isinstance(clusters, bool) or clusters < 2:
        raise UserError(f"clusters={clusters!r} must be a whole number, at least 2")


def _own(model: LoadedModel) -> SourceHead:
    if model.classifier is None:
        raise UserError("no source classifier, and no entry of a zoo whose pretraining data could give one")
    classes = len(model.classifier.weight)
    return SourceHead(model.classifier, OWN, classes, "its own training", f"the classifier of {classes:,} classes")


def _kept_heads(entry: ZooEntry) -> dict[str, Any]:
    """Return the recipes of the heads whose file is there, by name."""
    recipes = entry.card.get("source_heads", {})
    return {name: recipe for name, recipe in recipes.items() if path(entry.folder, name).is_file()}


def _remedy(kept: Collection[str]) -> str:
    """What a user may give instead of a head that an entry does not have, nor data to fit one."""
    words = {PROTOTYPES: PROTOTYPES, LABELS: LABELS}
    found = [words.get(name) or f"{CLUSTERS} clusters={name.partition('-')[2]}" for name in kept]
    return " or ".join(f"source={word}" for word in (*found, NONE))


def _kept(model: LoadedModel, entry: ZooEntry, name: str) -> SourceHead:
    recipe, layers = entry.card["source_heads"][name], entry.head(name)
    weights = [value for value in layers.parameters() if value.dim() == 2]
    if weights[0].shape[1] != model.width:
        raise UserError(f"{path(entry.folder, name)} takes {weights[0].shape[1]} features, the model has {model.width}")
    made = recipe.get("made", "kept in the entry")
    return SourceHead(layers, name.partition("-")[0], len(weights[-1]), recipe["data"], made)


def has_labels(split: Split) -> bool:
    """Return whether a linear classifier can be fitted on the labels: two classes with two images each."""
    return split.y.ndim == 1 and int((np.bincount(split.y[split.y >= 0]) >= 2).sum()) >= 2


def _pretraining(entry: ZooEntry, kept: Collection[str]) -> Split:
    """Open the images that an entry was trained on, with labels where there are some. Raises UserError."""
    source = entry.card.get("data", {}).get("source")
    if source is None:
        raise UserError(f"its card does not name its pretraining data, to fit a head on: {_remedy(kept)}")
    try:
        parts = splits_of(_place(source))
        split = "all" if "all" in parts else parts[0]
        return open_split(_place(source), split, on_error="skip", needs_labels=False)
    except UserError as error:
        raise UserError(
            f"its pretraining data {source} cannot be opened, to fit a head on ({error}): put the images back, or give "
            f"{_remedy(kept)}"
        ) from error


def _place(source: str) -> str | Path:
    """The source as evaluation opens it: training takes the name of a published set as a folder."""
    return Path(source) if source.partition(":")[0] in names() else source


def _fitted_once(model: LoadedModel, name: str, fitted: Callable[[], tuple[Head, SourceHead]]) -> SourceHead:
    """Fit a head and keep it in the entry, unless another process has just done so; others wait.

    In a folder that cannot be written the head is fitted, used and not kept.
    """
    folder = model.entry.folder
    place = folder / FOLDER if (folder / FOLDER).is_dir() else folder
    if not os.access(place, os.W_OK):
        return replace(fitted()[1], kept=False)
    with exclusive(folder / FOLDER / FOLDER, "a source head"):
        entry = ZooEntry.load(folder)
        if name in _kept_heads(entry):
            return _kept(model, entry, name)
        head, found = fitted()
        entry.keep_head(head)
        return found


def _fitted(
    model: LoadedModel,
    whole: Split,
    kind: str,
    name: str,
    clusters: int,
    say: Callable[[str], None],
    how: dict[str, Any],
) -> tuple[Head, SourceHead]:
    images, data = _drawn(whole, kind), model.entry.card["data"]
    say(f"source head of {model.name}: {kind} of {len(images):,} images of {images.name}, fitted once")
    features = extract(model, images, images.split, **{**how, "precision": "float32"})  # kept for all rankings
    made = f"a linear classifier fitted to {len(features):,} of its images{_changed(data, whole)}"
    recipe = {"data": data["source"], "images": len(features)}
    y = features.y
    if kind == CLUSTERS:
        if len(features) < clusters:
            raise UserError(
                f"{images.name} has {len(features)} images, fewer than {clusters} clusters: clusters=K, fewer"
            )
        y = spherical_clusters(features.x, clusters)
        if y.max() + 1 < clusters:
            made += f"; {y.max() + 1} of {clusters} clusters have images"
        by = f"spherical k-means of the centred features, {ROUNDS} rounds, seed 0"
        recipe |= {"labelled": has_labels(whole), "by": by}
    layers, strength = linear_head(features.x, y, features.ids)
    head = Head.of(name, layers, {**recipe, "made": made, "strength": strength})
    return head, SourceHead(layers, kind, head.recipe["classes"], data["source"], made)


def _changed(data: Mapping[str, Any], whole: Split) -> str:
    """Say if these are not the images of the training: another number, or arrays of other content."""
    if data.get("images") not in (None, len(whole)):
        return f"; its training had {data['images']:,} images, there are {len(whole):,} now"
    if isinstance(whole.images, ArrayImages) and "digest" in data:
        now = open_images(_place(data["source"]), split=splits(_place(data["source"]))[0])
        return "" if now.digest == data["digest"] else "; these are not the images of its training"
    return ""


def _drawn(whole: Split, kind: str) -> Split:
    """The images to fit a head on: for labels no held-out ones of an undivided folder, and about as many of each class.

    At most IMAGES, or PER_CLASS of each class; drawn by the names.
    """
    if kind == LABELS:
        known = whole.y >= 0
        if whole.split == "all":
            known &= ~held_out(whole.y, whole.ids)  # the test images of evaluation
        kept = whole.take(np.flatnonzero(known))
        most = max(IMAGES, PER_CLASS * len(np.unique(kept.y)))
        if len(kept) <= most:
            return kept
        return kept.take(label_subset(kept.y, kept.ids, kept.classes, most / len(kept)))
    if len(whole) <= IMAGES:
        return whole
    keys = draw_keys(whole.ids, 0, "images of a source head")
    return whole.take(np.sort(np.argsort(keys, kind="stable")[:IMAGES]))


def spherical_clusters(x: np.ndarray, k: int) -> np.ndarray:
    """Return the cluster (N,) int64 of each row, of at most k: spherical k-means by faiss, on the rows less their mean.

    x: (N, D) features, N at least k. Rectified features lie in a narrow cone, in which directions from 0 hardly differ.
    """
    centred = np.asarray(x, dtype=np.float64) - np.mean(x, 0, dtype=np.float64)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    rows = np.ascontiguousarray(centred / np.maximum(lengths, np.finfo(np.float32).tiny), dtype=np.float32)
    settings = {"niter": ROUNDS, "seed": 0, "spherical": True, "verbose": False}
    points = {"min_points_per_centroid": 1, "max_points_per_centroid": len(rows)}
    means = faiss.Kmeans(rows.shape[1], k, **settings, **points)
    means.train(rows)
    nearest = means.index.search(rows, 1)[1][:, 0]
    found = np.unique(nearest, return_inverse=True)[1].astype(np.int64)
    if found.max() < 1:
        raise UserError("all features are in one cluster: they do not differ")
    return found


def linear_head(x: np.ndarray, y: np.ndarray, ids: Sequence[str]) -> tuple[nn.Sequential, float]:
    """Fit a linear classifier and return it, features (N, D) -> logits (N, S), with the strength of its cross-entropy.

    x: (N, D). y: (N,) labels, those that occur become 0 ... S - 1 in order. ids: (N,) names.
    Logistic regression on standardised features; the penalty is the one of STRENGTHS with the lowest cross-entropy on a
    fifth of each class that is held out by name, so that the probabilities are neither too sharp nor too flat. The
    final fit is to all rows, up to 5e-3 of the objective.
    """
    y = np.unique(y, return_inverse=True)[1].astype(np.int64)
    rows, out = np.arange(len(y)), held_out(y, ids)
    if not out.any():
        raise UserError(
            "no class has two images, so none can be held out to choose the penalty: more images, or fewer clusters"
        )
    scaling = Scaling.of(x, rows, "standardize")
    learn, judge = (Part(x, rows[mask], y[mask]) for mask in (~out, out))
    part = problem(learn, scaling, "cpu")
    probes: list[Probe] = []
    losses: list[float] = []
    for strength in STRENGTHS:
        probes.append(fit(part, strength, start=probes[-1] if probes else None, **FIT))
        losses.append(judge.loss(scores_of(probes[-1], judge, scaling), "top1"))
        if losses[-1] > min(losses):
            break
    chosen = probes[int(np.argmin(losses))]
    probe = fit(problem(Part(x, rows, y), scaling, "cpu"), chosen.c, start=chosen, **FIT)
    weight = probe.weight / scaling.deviation
    layer = nn.utils.skip_init(nn.Linear, weight.shape[1], len(weight))
    layer.weight = nn.Parameter(torch.from_numpy(weight).float(), requires_grad=False)
    layer.bias = nn.Parameter(torch.from_numpy(probe.bias - weight @ scaling.mean).float(), requires_grad=False)
    return nn.Sequential(layer), probe.c
