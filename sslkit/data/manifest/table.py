"""`Manifest`: the decisions on a data set and a row for each image of all its splits; its file is read by `data=`."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.columns import has_value
from sslkit.data.expected_contents import PIXELS, SHA256
from sslkit.data.manifest import head
from sslkit.data.manifest.decisions import Decision, Opened, decide
from sslkit.data.manifest.rows import Joined, Names
from sslkit.data.manifest.survey import DIGEST, REASON, THUMBNAIL, Measures
from sslkit.data.sources.folder import FolderImages
from sslkit.errors import UserError
from sslkit.files.writing import write_csv, write_whole
from sslkit.terminal.say import counted, words

ENDINGS = (".csv", head.PARQUET)
UNREADABLE = "unreadable: "  # begins why such an image is left out
_AT_ONCE = 10_000  # rows that are turned into columns: some megabytes of texts


@dataclass(frozen=True, eq=False)
class Manifest:
    """N images of all splits of a data set, "train" first.

    name, source, columns: of the data set, and as they were typed. are_files: each row is a file, whose path is in
    `paths`. decisions: how the images are read, and why. remarks: further lines of the readers.
    paths: (N,) of files, or names within the split. splits: (N,) words.
    labels: (N,) int64 index into classes, -1 for none; several an image: (N, K) int8 of 1, -1, 0 (not known).
    groups: (N,) int64 numbers from 0, or None. group_names: (N,) in the table: values of the source where these are
        known, "" for an image that stands alone; else the numbers.
    measures: of each image, see `survey.Measures`; thumbnails and reasons lie on the disk, see `Joined`.
    left_out: (N,) why an image is not read, "" for one that is.
    """

    name: str
    source: str
    columns: Mapping[str, Any]
    are_files: bool
    decisions: Sequence[Decision]
    remarks: Sequence[str]
    paths: Sequence[str]
    splits: np.ndarray
    labels: np.ndarray
    classes: Sequence[str]
    groups: np.ndarray | None
    group_names: Sequence[str] | None
    measures: Mapping[str, np.ndarray | Joined]
    left_out: np.ndarray

    def __len__(self) -> int:
        return len(self.paths)

    def __str__(self) -> str:
        """One paragraph: what the data set is."""
        measures, readable = self.measures, ~self.unreadable
        splits = ", ".join(f"{count:,} {split}" for split, count in Counter(self.splits.tolist()).items())
        shapes = np.unique(measures["shape"][readable], axis=0)
        width, height, _, _ = np.median(measures["shape"][readable], 0).astype(int) if readable.any() else (0, 0, 0, 0)
        is_uniform = len(np.unique(shapes[:, :2], axis=0)) == 1
        size = f"{width} x {height} pixels" + ("" if is_uniform else ", the median of each side")
        bits = " and ".join(map(str, np.unique(shapes[:, 3])))
        classes = counted(len(self.classes), "class") if self.classes else "no labels"
        groups = f", {counted(len(np.unique(self.groups)), 'group')}" if self.groups is not None else ""
        lost = f"; {int(self.unreadable.sum()):,} cannot be read" if self.unreadable.any() else ""
        channels = next(int(decision.value) for decision in self.decisions if decision.subject == "channels")
        return (
            f"{self.name}: {counted(len(self), 'image')} ({splits}), {classes}{groups}, {size}, {bits} bits, read as "
            f"{counted(channels, 'channel')}{lost}"
        )

    @cached_property
    def unreadable(self) -> np.ndarray:
        """(N,) bool"""
        return self.measures["shape"][:, 0] == 0

    def write(self, out: str | Path) -> Path:
        """Write the table, .csv or .parquet, whole or not at all. Raises UserError."""
        path = check_ending(out)
        if path.suffix.lower() == head.PARQUET:
            with write_whole(path) as partial:
                self._write_parquet(partial, path.parent)
        else:
            write_csv(path, chain(self._head(), [self._columns()], self._rows(path.parent)))
        return path

    def _head(self) -> Iterator[list[str]]:
        yield head.mark_cells(self.source, words(self.columns), are_files=self.are_files)
        yield from (decision.cells for decision in self.decisions)
        yield from (["# said", remark] for remark in self.remarks)

    def _columns(self) -> list[str]:
        several = [f"{head.SEVERAL}{name}" for name in self.classes] if self.labels.ndim == 2 else [head.LABEL]
        return [head.PATH, head.SPLIT, *several, head.GROUP, head.BYTES, *head.MEASURED, head.LEFT_OUT]

    def _rows(self, folder: Path) -> Iterator[list[object]]:
        """The cells of each row; paths are relative to the folder of the table."""
        start = os.path.abspath(folder)
        measures = self.measures
        for row, path in enumerate(self.paths):
            name = os.path.relpath(path, start).replace(os.sep, "/") if self.are_files else path
            size = int(measures["bytes"][row])
            shape = measures["shape"][row] if not self.unreadable[row] else ("", "", "", "")
            group = "" if self.groups is None else self.group_names[row]
            digest = (SHA256 if self.are_files else PIXELS) + measures[DIGEST][row].tobytes().hex()
            about = [group, size if size >= 0 else "", digest, *shape]
            yield [name, self.splits[row], *self._labels_of(row), *about, self.left_out[row]]

    def _labels_of(self, row: int) -> list[object]:
        if self.labels.ndim == 2:
            return [{1: 1, -1: 0, 0: ""}[value] for value in self.labels[row].tolist()]
        label = int(self.labels[row])
        return [self.classes[label] if label >= 0 else ""]

    def _write_parquet(self, partial: Path, folder: Path) -> None:
        import pyarrow
        from pyarrow import parquet

        names, rows = self._columns(), (list(map(str, row)) for row in self._rows(folder))
        about = {head.MARK: head.head_text(self._head())}
        schema = pyarrow.schema([(name, pyarrow.string()) for name in names], metadata=about)
        with parquet.ParquetWriter(partial, schema) as writer:
            while some := list(islice(rows, _AT_ONCE)):
                columns = map(list, zip(*some, strict=True))
                writer.write_table(pyarrow.table(dict(zip(names, columns, strict=True)), schema=schema))


def check_ending(out: str | Path) -> Path:
    """The path of a table. Raises UserError for another ending, and for .parquet without pyarrow."""
    path = Path(out).expanduser()
    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"out={out} must end with .csv or .parquet")
    if path.suffix.lower() == head.PARQUET:
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise UserError(f"out={out} needs the package pyarrow: pip install pyarrow, or write a .csv") from error
    return path


def manifest_of(opened: Opened, source: str, measures: Sequence[Measures]) -> Manifest:
    """The manifest of opened images. source: as typed. measures: of each split."""
    images = list(opened.splits.values())
    first, joined = opened.first, _join(measures)
    decisions, remarks = decide(opened)
    are_files = all(isinstance(split, FolderImages) for split in images)
    several = first.multi_labels is not None
    groups = _groups(images)
    rows = np.repeat(list(opened.splits), list(map(len, images)))
    return Manifest(
        name=first.name,
        source=source,
        columns=first.options.columns.words,
        are_files=are_files,
        decisions=decisions,
        remarks=remarks,
        paths=Names(images, are_files=are_files),
        splits=rows,
        labels=np.concatenate([_labels(split, several=several) for split in images]),
        classes=list(map(str, first.classes or ())),
        groups=groups,
        group_names=None if groups is None else _names_of_groups(images, groups),
        measures=joined,
        left_out=_reasons(joined),
    )


def _join(measures: Sequence[Measures]) -> dict[str, np.ndarray | Joined]:
    """The measures of all splits, one after the other; what is large stays on the disk."""
    parts = {name: [of_split[name] for of_split in measures] for name in measures[0]}
    return {
        name: Joined(arrays) if name in (THUMBNAIL, REASON) else np.concatenate(arrays)
        for name, arrays in parts.items()
    }


def _reasons(measures: Mapping[str, np.ndarray | Joined]) -> np.ndarray:
    """(N,) why an image cannot be read, or ""."""
    reasons, rows = np.full(len(measures["shape"]), "", object), np.flatnonzero(measures["shape"][:, 0] == 0)
    reasons[rows] = [UNREADABLE + text.decode("utf-8", "replace") for text in measures[REASON][rows].tolist()]
    return reasons


def _labels(images: object, *, several: bool) -> np.ndarray:
    if several:
        return images.multi_labels
    return np.full(len(images), -1) if images.labels is None else images.labels


def _names_of_groups(images: Sequence[object], groups: np.ndarray) -> list[str]:
    if any(split.groups is not None and split.group_values is None for split in images):
        return list(map(str, groups.tolist()))
    cells = [value for split in images for value in split.group_values or [None] * len(split)]
    return [str(value).strip() if has_value(value) else "" for value in cells]


def _groups(images: Sequence[object]) -> np.ndarray | None:
    """Numbers from 0 in the order of the rows; an image of a split without groups stands alone."""
    if all(split.groups is None for split in images):
        return None
    is_alone = np.repeat([split.groups is None for split in images], list(map(len, images)))
    values = np.concatenate([split.groups for split in images if split.groups is not None])
    keys = np.empty(len(is_alone), np.int64)
    keys[~is_alone] = np.unique(values, return_inverse=True)[1]
    keys[is_alone] = len(values) + np.arange(int(is_alone.sum()))
    _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[numbers]
