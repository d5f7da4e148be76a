"""The samples in one tar file, as WebDataset groups its members: their images and labels."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple

import numpy as np

from sslkit.data.decode.formats import EXTENSIONS, START, looks_like_an_image
from sslkit.data.path_list import PathList
from sslkit.data.sources.file_lists import METADATA
from sslkit.data.sources.shard_files import State
from sslkit.data.sources.tar_labels import KEYS, MOST_BYTES, cells_of_json, of_cls, of_json, of_txt
from sslkit.data.sources.tar_names import Name, belongs_to_no_data, is_hidden, parse, plain
from sslkit.data.sources.walk import NOT_OPENED, kind_of

_IMAGES = frozenset(EXTENSIONS)
_LABELS = ("cls", "json", "txt")  # the first that a sample has counts


class Label(NamedTuple):
    """A class of an image. source: `.cls`, `.fine.cls`, `.json label` or `.txt`. value: a number or a name."""

    source: str
    value: str


@dataclass(frozen=True)
class Keys:
    """The keys of .json members that are read. label: of the classes, () for the usual of any label file.

    cells: of what is no class, such as groups and splits.
    """

    label: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Members:
    """The images of one shard, N in its order.

    names: without `./`, and with #2 behind one that was there before. offset, size: (N,) int64 bytes. sample: (N,)
    int64 a number for each sample; images of the same number are several of one. role: (N,) int32 places in `roles`,
    as `jpg` and `seg.png`. label: (N,) int32 places in `labels`, of which one is None for no label. cell: (N,) int32
    places in `cells`, of which each has the value of every one of `Keys.cells`.
    left_out: number of the other members by kind. apart: of labels that stood apart from their image. again: of images
    whose name was there before. reason: why the rest of the shard cannot be read; "" if it was read whole.
    """

    state: State
    names: PathList
    offset: np.ndarray
    size: np.ndarray
    sample: np.ndarray
    role: np.ndarray
    roles: list[str]
    label: np.ndarray
    labels: list[tuple[Label, ...] | None]
    cell: np.ndarray
    cells: list[tuple[str | None, ...]]
    left_out: Counter[str]
    apart: int = 0
    again: int = 0
    reason: str = ""


class _Given(NamedTuple):
    """A label as it stands in the shard. tail: the end of its source. classes: None for -1, which is none."""

    kind: str
    field: str
    tail: str
    classes: list[str] | None

    def labels(self, field: str) -> tuple[Label, ...] | None:
        """field: of the image, which is a part of its name where the label has the same."""
        above = f".{self.field}" if self.field and self.field != field else ""
        return None if self.classes is None else tuple(Label(f"{above}.{self.tail}", name) for name in self.classes)

    @property
    def suffix(self) -> str:
        return f".{self.field}.{self.kind}" if self.field else f".{self.kind}"

    @property
    def alone(self) -> str:
        """A kind of what is left out; a text that stands alone need not be a label."""
        return self.suffix if self.kind == "txt" else f"{self.suffix} beside no image"

    @property
    def order(self) -> tuple[int, bool, str]:
        return _LABELS.index(self.kind), self.field != "", self.field


class Samples:
    """Members in their order, as samples: adjacent ones of one key, up to a suffix that the sample has already."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.left_out: Counter[str] = Counter()
        self._names: list[str] = []
        self._columns = {name: array("q") for name in ("offset", "size", "sample", "role", "label", "cell")}
        self._roles: dict[str, int] = {}
        self._labels: dict[tuple[Label, ...] | None, int] = {None: 0}
        self._cells: dict[tuple[str | None, ...], int] = {(None,) * len(keys.cells): 0}
        self._cells_apart: dict[str, tuple[str | None, ...]] = {}  # as `_apart`
        self._samples = self._joined = 0
        self._start_of_archive = 0
        self._apart: dict[str, list[_Given]] = defaultdict(list)  # of samples without an image, by group
        self._open("")

    def _open(self, key: str) -> None:
        self._key = key
        self._suffixes: set[str] = set()
        self._images: list[Name] = []
        self._numbers: dict[str, int] = {}  # of the groups
        self._given: dict[str, list[_Given]] = {}  # labels by group
        self._given_cells: dict[str, tuple[str | None, ...]] = {}

    def add(self, stream: IO[bytes], written: str, offset: int, size: int) -> None:
        name = plain(written)
        if is_hidden(name):
            if not belongs_to_no_data(name):
                self.left_out["hidden"] += 1
            return
        parts = parse(name)
        if parts.key != self._key or parts.suffix in self._suffixes:
            self._close()
            self._open(parts.key)
        self._suffixes.add(parts.suffix)
        if parts.extension in _LABELS:
            self._add_label(stream, parts, offset, size)
        elif parts.extension in _IMAGES or (
            parts.extension not in NOT_OPENED and looks_like_an_image(_content(stream, offset, min(size, START)))
        ):
            self._add_image(name, parts, offset, size)
        else:
            last = name.rpartition("/")[2]
            self.left_out[last if last in METADATA else kind_of(name)] += 1

    def end(self) -> None:
        """End of an archive: labels that stand apart belong to the images in it."""
        self._close()
        self._open("")
        if self._apart or self._cells_apart:
            self._join()
        self._apart.clear()
        self._cells_apart.clear()
        self._start_of_archive = len(self._names)

    def members(self, state: State, reason: str) -> Members:
        names, again = _number(self._names)
        codes = {name: np.array(self._columns[name], np.int32) for name in ("role", "label", "cell")}
        numbers = {name: np.array(self._columns[name], np.int64) for name in ("offset", "size", "sample")}
        tables = {"roles": list(self._roles), "labels": list(self._labels), "cells": list(self._cells)}
        counts = {"left_out": self.left_out, "apart": self._joined, "again": again, "reason": reason}
        return Members(state, PathList(names), **numbers, **codes, **tables, **counts)

    def _add_image(self, name: str, parts: Name, offset: int, size: int) -> None:
        if parts.group not in self._numbers:
            self._numbers[parts.group] = self._samples
            self._samples += 1
        self._images.append(parts)
        self._names.append(name)
        columns = self._columns
        columns["offset"].append(offset)
        columns["size"].append(size)
        columns["sample"].append(self._numbers[parts.group])
        columns["role"].append(self._roles.setdefault(parts.role, len(self._roles)))

    def _add_label(self, stream: IO[bytes], parts: Name, offset: int, size: int) -> None:
        before = self._given.setdefault(parts.group, [])
        better = any(label.order[0] < _LABELS.index(parts.extension) for label in before)
        content = b"" if better and not self._keys.cells else _content(stream, offset, min(size, MOST_BYTES + 1))
        if self._keys.cells and parts.extension == "json":
            self._given_cells[parts.group] = cells_of_json(content, self._keys.cells)
        label = None if better else _label(parts, content, self._keys.label)
        if label is None:
            self.left_out[f".{parts.extension}"] += 1
        else:
            before.append(label)

    def _close(self) -> None:
        """Give the images of a sample their labels; the label files that are not needed are left out."""
        used = set()
        for parts in self._images:
            label = _of_image(parts, self._given)
            used.add(id(label))
            self._columns["label"].append(self._place(label, parts))
            cells = self._given_cells.get(parts.group) or self._given_cells.get(parts.key)
            self._columns["cell"].append(self._place_of_cells(cells))
        if not self._images:
            self._cells_apart |= self._given_cells
        for group, some in self._given.items():
            if not self._images:
                self._apart[group] += some
            else:
                self.left_out.update(label.suffix for label in some if id(label) not in used)

    def _place(self, given: _Given | None, parts: Name) -> int:
        """The place of an image's label among the different ones, of which even a million images have few."""
        labels = given and given.labels(parts.field)
        return self._labels.setdefault(labels, len(self._labels))

    def _place_of_cells(self, cells: tuple[str | None, ...] | None) -> int:
        return 0 if cells is None else self._cells.setdefault(cells, len(self._cells))

    def _join(self) -> None:
        """Give the images of an archive the labels of samples of the same name, where each is there once."""
        rows_of = defaultdict(list)
        for row in range(self._start_of_archive, len(self._names)):
            parts = parse(self._names[row])
            if parts.group in self._apart:
                rows_of[parts.group].append((row, parts))
            if cells := self._cells_apart.get(parts.group):
                self._columns["cell"][row] = self._place_of_cells(cells)
        for group, some in self._apart.items():
            if not self._is_clear(rows_of[group], some):
                self.left_out.update(label.alone for label in some)
                continue
            self._joined += 1
            for row, parts in rows_of[group]:
                self._columns["label"][row] = self._place(_of_image(parts, {group: some}), parts)

    def _is_clear(self, rows: Sequence[tuple[int, Name]], some: Sequence[_Given]) -> bool:
        once = len({parts.suffix for _, parts in rows}) == len(rows)
        one_each = len({(label.kind, label.field) for label in some}) == len(some)
        return bool(rows) and once and one_each and not any(self._columns["label"][row] for row, _ in rows)


def _content(stream: IO[bytes], offset: int, size: int) -> bytes:
    stream.seek(offset)
    return stream.read(size)


def _label(parts: Name, content: bytes, keys: Sequence[str]) -> _Given | None:
    """The label in a file; None for a .json without one. keys: of a .json that alone may hold it; () for the usual."""
    if keys and parts.extension != "json":
        return None
    if parts.extension != "json":
        classes = of_cls(content) if parts.extension == "cls" else of_txt(content)
        return _Given(parts.extension, parts.field, parts.extension, classes)
    key_and_classes = of_json(content, keys or KEYS)
    return key_and_classes and _Given("json", parts.field, f"json {key_and_classes[0]}", key_and_classes[1])


def _of_image(parts: Name, given: dict[str, list[_Given]]) -> _Given | None:
    """The label of an image: that of its whole name, else of its group, else of its sample."""
    if not given:
        return None
    some = given.get(parts.group) or given.get(parts.key) or []
    if len(some) <= 1:
        return some[0] if some else None
    same = [label for label in some if label.field == parts.field]
    return min(same if parts.field and same else some, key=lambda one: one.order)


def _number(names: list[str]) -> tuple[list[str], int]:
    """Names that are all different, as a.jpg, a.jpg#2, a.jpg#3; the number of those that were there before."""
    taken = set(names)
    if len(taken) == len(names):
        return names, 0
    numbered_names, seen = [], Counter()
    for name in names:
        seen[name] += 1
        if seen[name] == 1:
            numbered_names.append(name)
            continue
        while (numbered := f"{name}#{seen[name]}") in taken:
            seen[name] += 1
        taken.add(numbered)
        numbered_names.append(numbered)
    return numbered_names, len(names) - len(seen)
