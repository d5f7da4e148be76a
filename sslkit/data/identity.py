"""`Identity`: the metadata of a set of images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sslkit.data.decode.scale import UNKNOWN, Scale


@dataclass(frozen=True)
class Identity:
    """The metadata of a set of images.

    source: the argument of `open_images`, to open another split.
    splits: of the source.
    labels: (N,) int64, -1 for unlabelled rows, or None. classes: their names, in label order.
    multi_labels: (N, K) int8 of sets with several classes an image, and labels is then None: 1 (yes), -1 (no), 0 (not
        known). Runs do not read them, evaluation does.
    numbers: (N,) float64 of sets whose labels are numbers, NaN where one is not known; labels is then None, and classes
        holds their name. Likewise.
    licence: of the images, if known.
    groups: (N,) int64, equal for images that stay on one side of a split, over all splits; None: each stands alone.
    group_values: (N,) the values that `groups` numbers, as written, where these are known.
    scale, mirror: what a manifest decides of its images, where nothing is given.
    """

    name: str
    source: "str | Path | None" = None
    splits: tuple[str, ...] = ("train",)
    labels: np.ndarray | None = None
    classes: list[str] | None = None
    licence: str | None = None
    multi_labels: np.ndarray | None = None
    groups: np.ndarray | None = None
    group_values: Sequence[str | None] | None = None
    scale: Scale = UNKNOWN
    mirror: bool | None = None
    numbers: np.ndarray | None = None
