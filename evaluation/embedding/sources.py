"""Every image of a source: its splits, opened one after the other, and a name for each image."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation import datasets
from evaluation.datasets import AS_USUAL, Reading, Split
from sslkit.data.images import Images
from sslkit.data.published._listed import ListedImages
from sslkit.data.sources.folder import FolderImages
from sslkit.data.sources.named import is_divisible, reusable


@dataclass(frozen=True)
class Part:
    """One open split. prefix: before an image's id, it gives the name of the image in the source."""

    split: Split
    prefix: str

    def names(self, ids: Sequence[str]) -> list[str]:
        """Return the names of the images with these ids: for files their path below the source's folder."""
        return [f"{self.prefix}{image_id}" for image_id in ids]


def open_parts(source: Any, split: str | None, reading: Reading = AS_USUAL) -> list[Part]:
    """Open a split of a source, or all of them; images without labels are accepted.

    source: see `evaluation.open_split`. split: None for all. An image that several splits of a published
    set share is taken once. Raises UserError for a source that cannot be opened, and for one without images.
    """
    source = reusable(source, reading.columns)
    names = _splits(source, reading)
    how = {"on_error": "skip", "needs_labels": False}
    opened = [reading.open(source, name, **how) for name in ((split,) if split else names)]
    return list(_parts(opened, len(names) > 1))


def merge_classes(parts: Sequence[Split]) -> tuple[list[str], list[np.ndarray]]:
    """Return the classes of all splits by name, in the order of their first split, and the labels numbered by them."""
    classes = list(dict.fromkeys(str(name) for split in parts for name in split.classes))
    number = {name: label for label, name in enumerate(classes)}
    labels = []
    for split in parts:
        new = np.array([*(number[str(name)] for name in split.classes), -1])  # the last stands for -1, no label
        # Several labels an image: published sets have the same classes in every split.
        labels.append(split.y if split.y.ndim == 2 else new[split.y])
    return classes, labels


def locate(parts: Sequence[Part], paths: Sequence[str]) -> Iterator[tuple[Part, int]]:
    """Yield the part and its row of each image of an `Embedding`. paths: (N,) its names, in the order of the parts."""
    wanted = set(paths)
    for opened in parts:
        yield from ((opened, row) for row, name in enumerate(opened.names(opened.split.ids)) if name in wanted)


def _splits(source: Any, reading: Reading) -> tuple[str, ...]:
    if isinstance(source, Split):
        return (source.split,)
    if isinstance(source, Images) and source.source is None and not is_divisible(source):
        return (source.split,)
    if entry := datasets.find_published(source):
        return tuple(entry.counts)
    names = datasets.splits_of(source, reading.cache, reading.columns)
    return ("all",) if "all" in names else names


def _parts(opened: Sequence[Split], several: bool) -> Iterator[Part]:
    seen: set[str] = set()
    for split in opened:
        images = split.images
        if isinstance(images, ListedImages):
            rows = np.array([row for row, name in enumerate(split.ids) if name not in seen], dtype=np.int64)
            seen |= set(split.ids)
            if len(rows):
                yield Part(split if len(rows) == len(split) else split.take(rows), "")
        elif isinstance(images, FolderImages):
            yield Part(split, images.prefix)
        else:
            yield Part(split, f"{split.split}/" if several else "")
