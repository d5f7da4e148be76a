"""The source head of each model: its own, or one fitted once to its pretraining data and kept beside the entry.

found = source_head(model)                       # or source="clusters"; raises UserError where there is none
found.layers(features), found.kind, found.classes, found.data
"""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from evaluation.datasets import AS_USUAL, Reading, find_published, open_split, splits_of
from evaluation.datasets._sources import test_images
from evaluation.datasets.base import Split
from evaluation.features.extraction import features_of
from evaluation.features.seen import columns_of
from evaluation.features.source_probs import shape_of
from evaluation.learners.fitted_head import ROUNDS, linear_head, spherical_clusters
from sslkit.data.held_out import draw_keys
from sslkit.data.sources.named import open_images, splits
from sslkit.data.subsets import label_subset
from sslkit.errors import UserError
from sslkit.files.writing import exclusive
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime
from sslkit.zoo.entry import ZooEntry
from sslkit.zoo.heads import CLUSTERS, FOLDER, LABELS, PROTOTYPES, Head, path

NONE, OWN = "none", "classifier"
SOURCES = (PROTOTYPES, LABELS, CLUSTERS, NONE)
ANYWHERE = Runtime()
CLUSTER_COUNT = 100  # the same for all data sets, so that LEEP compares models of several
# images to fit a head on, at most, a round number that takes seconds; but so many of each class
IMAGES, PER_CLASS = 10_000, 20


@dataclass(frozen=True, eq=False)
class SourceHead:
    """Layers from a model's features (N, F) to the logits (N, S) of its source classes.

    kind: "prototypes", "labels", "clusters", or "classifier" of a model from outside a zoo.
    data: the pretraining data. made: how it was made, in words. kept: False if it could not be stored.
    """

    layers: nn.Module = field(repr=False)
    kind: str
    data: str
    made: str
    kept: bool = True

    @property
    def classes(self) -> int:
        """The number S of source classes."""
        return shape_of(self.layers)[1]


def source_head(
    model: Model,
    source: str | None,
    clusters: int,
    reading: Reading = AS_USUAL,
    runtime: Runtime = ANYWHERE,
) -> SourceHead:
    """Return the source head of a model.

    source: "prototypes" or "labels" that its training has kept, or "labels" or "clusters" of its pretraining data, on
        which a linear classifier is fitted once and kept in the entry's folder `heads`; "none". None: its own
        prototypes or labels, else those of the data, else clusters. A model outside a zoo has its own classifier only.
    clusters: number of them. reading, runtime: of the extraction of its pretraining data.
    Raises UserError, with the reason and a remedy, if the model has no such head.
    """
    if source == NONE:
        raise UserError("source=none: no source head")
    if model.entry is None:
        return _own(model)
    entry = ZooEntry.load(model.entry.folder)  # another task of this ranking may have added a head
    heads, name = _heads_of(entry), f"{CLUSTERS}-{clusters}"
    for kind in (PROTOTYPES, LABELS):
        if source in (kind, None) and kind in heads:
            return _load_head(model, entry, kind)
    if source == PROTOTYPES:
        raise UserError(f"its training has kept no prototypes: {_remedy(heads)}")
    if name in heads and (source == CLUSTERS or (source is None and not heads[name].get("labelled", True))):
        return _load_head(model, entry, name)
    whole = _pretraining(entry, heads, reading.cache)
    labelled = has_labels(whole)
    if source == LABELS and not labelled:
        raise UserError(f"its pretraining data {whole.name} has no two classes of one label an image: source=clusters")
    name = LABELS if labelled and source != CLUSTERS else name
    return _fit_once(model, name, lambda: _fit(model, whole, name, clusters, reading, runtime))


def check_source(source: Any, clusters: Any) -> None:
    """Raise UserError for an unknown source and a number of clusters below 2."""
    if source is not None and source not in SOURCES:
        raise UserError(f"source={source!r} must be one of {', '.join(SOURCES)}, or null")
    if not isinstance(clusters, int) or isinstance(clusters, bool) or clusters < 2:
        raise UserError(f"clusters={clusters!r} must be a whole number, at least 2")


def _own(model: Model) -> SourceHead:
    if model.source_head is None:
        raise UserError("no source classifier, and no entry of a zoo whose pretraining data could give one")
    return SourceHead(model.source_head, OWN, "its own training", "the classifier that it came with")


def _heads_of(entry: ZooEntry) -> dict[str, Any]:
    """Return the recipes of the entry's heads by name, without fitted ones whose file is gone: they are fitted anew."""
    recipes = entry.card.get("source_heads", {})
    return {
        name: recipe for name, recipe in recipes.items() if "images" not in recipe or path(entry.folder, name).is_file()
    }


def _remedy(kept: Collection[str]) -> str:
    """Return the words that choose another head, where none can be fitted."""
    others = [f"{CLUSTERS} clusters={name.partition('-')[2]}" if "-" in name else name for name in kept]
    return " or ".join(f"source={word}" for word in (*others, NONE))


def _load_head(model: Model, entry: ZooEntry, name: str) -> SourceHead:
    recipe, layers = entry.card["source_heads"][name], entry.head(name)
    width, _ = shape_of(layers)
    if width != model.width:
        raise UserError(f"{path(entry.folder, name)} takes {width} features, the model has {model.width}")
    return SourceHead(layers, _kind(name), recipe["data"], recipe.get("made", "kept in the entry"))


def _kind(name: str) -> str:
    """Return the kind of a head from its name: "clusters" of "clusters-100"."""
    return name.partition("-")[0]


def has_labels(split: Split) -> bool:
    """Return whether a linear classifier can be fitted on the labels: two classes with two images each."""
    return split.y.ndim == 1 and not split.has_numbers and int((np.bincount(split.y[split.y >= 0]) >= 2).sum()) >= 2


def _pretraining(entry: ZooEntry, kept: Collection[str], cache: str | Path | None) -> Split:
    """Open the images that an entry was trained on, with labels where there are some. Raises UserError."""
    source = entry.card.get("data", {}).get("source")
    if source is None:
        raise UserError(f"its card does not name its pretraining data, to fit a head on: {_remedy(kept)}")
    try:
        columns = columns_of(entry.card)
        parts = splits_of(_place(source), cache, columns)
        how = {"on_error": "skip", "needs_labels": False, "cache": cache, "columns": columns}
        return open_split(_place(source), "all" if "all" in parts else parts[0], **how)
    except UserError as error:
        raise UserError(
            f"its pretraining data {source} cannot be opened, to fit a head on ({error}): put the images back, or give "
            f"{_remedy(kept)}"
        ) from error


def _place(source: str) -> str | Path:
    """The source as evaluation opens it: training takes the name of a published set as a folder."""
    return Path(source) if find_published(source) else source


def _fit_once(model: Model, name: str, fitted: Callable[[], tuple[Head, SourceHead]]) -> SourceHead:
    """Fit a head and keep it in the entry, unless another process has just done so; others wait.

    In a folder that cannot be written the head is fitted, used and not kept.
    """
    folder = model.entry.folder
    writable = folder / FOLDER if (folder / FOLDER).is_dir() else folder
    if not os.access(writable, os.W_OK):
        return replace(fitted()[1], kept=False)
    with exclusive(folder / FOLDER / FOLDER, "a source head"):
        entry = ZooEntry.load(folder)
        if name in _heads_of(entry):
            return _load_head(model, entry, name)
        head, source = fitted()
        entry.keep_head(head)
        return source


def _fit(
    model: Model,
    whole: Split,
    name: str,
    clusters: int,
    reading: Reading,
    runtime: Runtime,
) -> tuple[Head, SourceHead]:
    kind, data = _kind(name), model.entry.card["data"]
    images = _drawn(whole, kind)
    runtime.say(f"source head of {model.name}: {kind} of {len(images):,} images of {images.name}, fitted once")
    features = features_of(model, images, reading, replace(runtime, precision="float32"))  # kept for all rankings
    difference = _difference(model.entry.card, whole, reading.cache)
    made = f"a linear classifier fitted to {len(features):,} of its images{difference}"
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
    layers, strength = linear_head(features.x, y, features.ids, features.groups)
    head = Head.from_layers(name, layers, {**recipe, "made": made, "strength": strength})
    return head, SourceHead(layers, kind, data["source"], made)


def _difference(card: Mapping[str, Any], whole: Split, cache: str | Path | None) -> str:
    """Say if these are not the images of the training: another number, or another content."""
    data, columns = card["data"], columns_of(card)
    if data.get("images") not in (None, len(whole)):
        return f"; its training had {data['images']:,} images, there are {len(whole):,} now"
    source = _place(data["source"])
    now = open_images(source, split=splits(source, cache, columns)[0], cache=cache, columns=columns)
    trained_on = data.get("content", now.content_digest)
    return "" if now.content_digest == trained_on else "; these are not the images of its training"


def _drawn(whole: Split, kind: str) -> Split:
    """The images to fit a head on: for labels no held-out ones of an undivided folder, and about as many of each class.

    At most IMAGES, or PER_CLASS of each class; drawn by the names.
    """
    if kind == LABELS:
        has_label = whole.y >= 0
        if whole.split == "all":
            has_label &= ~test_images(whole)  # the test images of evaluation
        learned = whole.take(np.flatnonzero(has_label))
        most = max(IMAGES, PER_CLASS * len(np.unique(learned.y)))
        if len(learned) <= most:
            return learned
        return learned.take(label_subset(learned.y, learned.ids, learned.classes, most / len(learned)))
    if len(whole) <= IMAGES:
        return whole
    keys = draw_keys(whole.ids, 0, "images of a source head")
    return whole.take(np.sort(np.argsort(keys, kind="stable")[:IMAGES]))
