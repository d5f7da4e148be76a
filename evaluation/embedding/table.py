"""embed(model, source) -> Embedding: the features of every image of a source, in one table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evaluation.datasets import Reading
from evaluation.embedding.sources import Part, merge_classes, open_parts
from evaluation.features.extraction import LABELLED, LOADED, check, features_of
from sslkit.models.loading import Loading
from sslkit.models.model import Model
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime


@dataclass(frozen=True, eq=False)
class Embedding:
    """N rows of features, in the order of the source's splits and of the paths within each.

    x: (N, D) float32, memory-mapped if it comes from the cache. paths: (N,) str, of files relative to the source's
    folder, of arrays the split and a hash of the pixels.
    y: (N,) int64 index into classes, -1 without label; several labels an image: (N, K) int8 of 1, -1, 0.
    classes: names of the labels. splits: (N,) str. unreadable: names of the images that are left out.
    about: the model's name and sha256, the data's name, and the preparation of the images: mean, std, sizes, precision.
    likeness: (N, 4) int64 hashes of the pixels, see `sslkit.data.likeness`; None where the features come from a file.
    """

    x: np.ndarray
    paths: np.ndarray
    y: np.ndarray
    classes: Sequence[str]
    splits: np.ndarray
    unreadable: tuple[str, ...]
    about: Mapping[str, Any] = field(repr=False)
    likeness: np.ndarray | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.x)


SHARED = (*LOADED, *LABELLED, "precision", "batch_size", "device", "workers", "progress")  # options that it obeys


@public(*SHARED)
def embed(
    model: Any,
    source: Any,
    split: str | None = None,
    *,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> Embedding:
    """Extract the features of every image of a source.

        embedding = evaluation.embed("runs/zoo/NAME", "path/to/images")
        embedding.x, embedding.paths  # (N, D) float32, (N,) str

    model: see `sslkit.load`. source: see `evaluation.open_split`; labels are not needed.
    split: None for all splits.
    A stopped call goes on where it stopped, from the blocks in the cache. Unreadable images are left out and named.
    Raises UserError for a model or source that cannot be opened, and if no image can be read.
    """
    check(runtime)
    return embed_parts(loading.load(model), open_parts(source, split, reading), reading, runtime)


def embed_parts(model: Model, parts: Sequence[Part], reading: Reading, runtime: Runtime) -> Embedding:
    """Extract the features of open splits; see `embed`."""
    about = describe(model, parts, runtime)
    tables = [features_of(model, opened.split, reading, runtime) for opened in parts]
    classes, labels = merge_classes([opened.split for opened in parts])
    paths, y, unreadable = [], [], []
    for opened, features, of_part in zip(parts, tables, labels, strict=True):
        paths += opened.names(features.ids)
        y.append(of_part[np.isin(opened.split.ids, features.ids)])
        unreadable += opened.names(features.unreadable)
    x = tables[0].x if len(tables) == 1 else np.concatenate([features.x for features in tables])
    splits = np.repeat([opened.split.split for opened in parts], [len(features) for features in tables])
    likeness = np.concatenate([features.likeness for features in tables])
    return Embedding(x, np.array(paths), np.concatenate(y), classes, splits, tuple(unreadable), about, likeness)


def describe(model: Model, parts: Sequence[Part], runtime: Runtime) -> dict[str, Any]:
    """Return what an `Embedding` says about its model, data and preparation. Raises UserError for videos."""
    images = [model.clean(opened.split.images) for opened in parts]
    return {
        "model": model.name,
        "digest": model.digest,
        "data": parts[0].split.name,
        "image_size": model.image_size,
        "resize": max(cleaned.options.resize for cleaned in images),
        "interpolation": model.resizing.interpolation,
        "channels": model.in_chans,
        "mean": [float(value) for value in model.mean],
        "std": [float(value) for value in model.std],
        "precision": runtime.precision,
    }
