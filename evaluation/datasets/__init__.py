"""Data sets that backbones are judged on: any source of `sslkit.open_images`, with labels and a metric.

split = evaluation.datasets.open_split("pets", "test", root="data")
split = evaluation.datasets.open_split("cub2011:/big/birds", "novel_test")
split = evaluation.datasets.open_split("path/to/folder", "test")
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from evaluation.datasets._copies import overlap
from evaluation.datasets._labels import refuse_numbers
from evaluation.datasets._sources import drop_unlabelled, note_of, of_source, splits_of
from evaluation.datasets.base import Split
from sslkit.data.image_options import (
    CACHE,
    INTERPOLATIONS,
    MOST_PIXELS,
    VALUES,
    DataOptions,
    ImageOptions,
)
from sslkit.data.images import Images
from sslkit.data.mirror import is_mirrored
from sslkit.data.published import find, find_published, names
from sslkit.data.sources.named import reusable
from sslkit.errors import UserError
from sslkit.options.settings import setting, with_default
from sslkit.runtime.callers import public

MEASURED = "test"  # the split, where none is named
READ = ("root", "counts", *VALUES, "cache")  # of `Reading`, what every function obeys that opens data
LABELLED = (*READ, "columns")  # and what those obey that open images with labels

__all__ = [
    "LABELLED",
    "READ",
    "Reading",
    "Split",
    "find",
    "find_published",
    "names",
    "note_of",
    "open_split",
    "overlap",
    "splits_of",
]


@dataclass(frozen=True, kw_only=True)
class Reading(DataOptions):
    """How the images of a source are read, for every split of it; see `open_split`, and `Model.clean`."""

    resize: int | None = setting(
        None, "pixels of the shorter side before the crop; null: the model's own", least=1, most=2 * MOST_PIXELS
    )
    interpolation: str | None = setting(
        None, "of this resizing: bilinear or bicubic; null: the model's own", choices=INTERPOLATIONS
    )
    cache: str | Path | None = setting(CACHE, "folder of what is computed once; null: nothing is kept")

    def mirrors(self, data: Any) -> bool:
        """Return whether training images of a set are mirrored at random; of doubtful classes a line says it once.

        data: with `classes` and `name`, as a `Split`.
        """
        written = data.images.mirror if isinstance(data, Split) else None
        return is_mirrored(self.mirror, data.classes, data.name, written)

    def open(
        self, source: Any, split: str, *, needs_labels: bool = True, takes_numbers: bool = False, **more: Any
    ) -> Split:
        """Open one split as `open_split` does. more: options in the place of these.

        Raises UserError for labels that are numbers unless `takes_numbers`, too.
        """
        options = {name: getattr(self, name) for name in (*LABELLED, "on_error")}
        opened = split_of(source, SplitOptions(split=split, **{**options, **more}), needs_labels)
        if not takes_numbers:
            refuse_numbers(opened, "this")
        return opened

    @property
    def values_given(self) -> dict[str, Any]:
        """Those of `VALUES` and the columns that are given, for the commands that are printed, and for records."""
        values = {name: value for name, value in self.values.items() if value != getattr(AS_USUAL, name)}
        return values | self.columns.words


AS_USUAL = Reading()


@dataclass(frozen=True, kw_only=True)
class SplitOptions(ImageOptions):
    """Options of `open_split`: those of `sslkit.open_images` with other defaults."""

    fit: str = with_default(ImageOptions, "fit", "crop")
    on_error: str = with_default(ImageOptions, "on_error", "raise")


@public()
def open_split(
    source: str | Path | Images | Dataset | Sequence[str | Path] | Split,
    split: str = MEASURED,
    *,
    needs_labels: bool = True,
    options: SplitOptions,
) -> Split:
    """Open one split of a data set, with its labels and its metric. Nothing is downloaded.

        split = evaluation.open_split("path/to/images", "test", image_size=96)
        split.images, split.y  # N images, their labels (N,) int64, or float64 of columns.label_kind=number

    source: a published set, `NAME` or `NAME:ROOT` (see `names`; write ./NAME for a folder of that name); or any source
        of `sslkit.open_images` that has labels, also a map-style Dataset. Its metric is top-1 accuracy, except that
        torchvision's class of a published set keeps that set's metric. A `Split` is returned as it is, if it is the
        requested one.
    split: a split of the source; for a published set see the `counts` of `find(name)`. Of image files, shards, tables
        and a Dataset without held-out images "test" is a fifth of each class, drawn by a hash of the names and at
        least one image, "train" the rest, and "all" both. A missing "val" is not created here: see
        `sslkit.data.held_out`.
    needs_labels: images without a label are left out, with a warning; False keeps them, and their y is -1.
    Files of published sets are RGB by default. With on_error="skip", `images` returns another image in the place of an
    unreadable one and records that in its `index`: the caller must drop such rows from the images and from y, ids and
    groups.
    Raises UserError for an unknown source or split, for missing files (lists all, with their origin), for images
    without labels if they are needed, and for a folder in which less than two classes have a second image to hold out.
    """
    return split_of(source, dataclasses.replace(options, split=split), needs_labels)


def split_of(source: Any, options: SplitOptions, needs_labels: bool = True) -> Split:
    """Open the split that the options name, see `open_split`."""
    if isinstance(source, Split):
        return _same(source, options.split)
    source = reusable(source, options.columns)
    opened = dataclasses.replace(of_source(source, options), source=source)
    return drop_unlabelled(opened) if needs_labels and not find_published(source) else opened


def _same(opened: Split, split: str) -> Split:
    if opened.split != split:
        raise UserError(f"{opened.name} is open as its split {opened.split!r}, not {split!r}")
    return opened
