"""The contract of an evaluation data set: which images, which labels, judged by what."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sslkit.data.images import ImageOptions, Images

METRICS = ("top1", "mean_per_class", "map11")


@dataclass(frozen=True)
class Split:
    """One split of a data set, opened.

    images: N square uint8 images. y: (N,) int64, or (N, K) int8 of 1, -1, 0 (do not count) for several labels.
    classes: their names. ids: (N,) one unique str per image that does not depend on the order of the listing: the
    path below the root, or the sha256 of the pixels of arrays.
    metric: one of METRICS; it belongs to the data set. groups: (N,) int64 images of one thing, or None.
    name, split: for tables. digest: sha256 of the list of images, their labels and the pixels' options.
    """

    images: Images
    y: np.ndarray
    classes: Sequence[str]
    ids: np.ndarray
    metric: str
    name: str
    split: str
    groups: np.ndarray | None = field(default=None, repr=False)

    @property
    def digest(self) -> str:
        return self.images.digest

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class Entry:
    """A published data set: one file of this folder, in its variable ENTRY.

    open: (root, options) -> Split; options.split is one of `counts`. Raises UserError naming the files to get.
    metric: one of METRICS. classes: how many. counts: images of each official split, asserted when it is opened.
    train: the split that a final classifier learns from ("trainval" where there is a "val").
    licence: in a line. files: what must lie below root, and where it comes from, for the error.
    """

    title: str
    open: Callable[[Path, ImageOptions], Split]
    metric: str
    classes: int
    counts: dict[str, int]
    licence: str
    files: str
    train: str = "train"
