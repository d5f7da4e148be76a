"""The files of one split of a source, with their labels from folders of classes or from a column."""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.columns import Columns, group_numbers, is_pattern
from sslkit.data.images import Identity, check_split
from sslkit.data.sources.class_names import as_read, in_order, match_classes
from sslkit.data.sources.column_values import (
    check_groups,
    refuse,
    rows_of_splits,
    several_labels,
    values_of_names,
)
from sslkit.data.sources.label_numbers import numbers_in_values
from sslkit.data.sources.label_texts import labels_in_texts
from sslkit.data.sources.split_words import is_unlabelled, resolve_split, split_like, split_of, usual
from sslkit.terminal import say
from sslkit.terminal.say import counted

_PICTURES = frozenset(("image", "images", "img", "imgs", "jpegimages"))  # folders of data sets of masks
_MASKS = frozenset(("mask", "masks", "label", "labels", "annotation", "annotations", "gt", "segmentation"))


@dataclass(frozen=True)
class Listing:
    """The files of a split. folder: of the split. paths: relative to it, sorted. splits: of the source.

    labels: (N,) int64, -1 for none, and classes: their names; None without classes. multi_labels: (N, K) int8 of sets
    with several classes an image, and numbers: (N,) float64, as of `data.images.Identity`. groups: (N,) int64, or None,
    and their values. digests: as of `Facts`.
    """

    folder: Path
    paths: list[str]
    splits: tuple[str, ...]
    labels: np.ndarray | None = None
    classes: list[str] | None = None
    multi_labels: np.ndarray | None = None
    groups: np.ndarray | None = None
    digests: Sequence[bytes | None] | None = None
    group_values: Sequence[str | None] | None = None
    numbers: np.ndarray | None = None

    def identity(self, name: str, source: "str | Path | None") -> Identity:
        """The metadata of its images. source: to open another split."""
        names = ("classes", "multi_labels", "groups", "group_values", "numbers")
        return Identity(name, source, self.splits, self.labels, **{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class Facts:
    """What is known of N files: their classes and groups, None for a file without, or None altogether.

    several: the cells of each column of labels, where each class has one; {} for no such.
    digests: of a manifest, see `data.expected_contents`.
    """

    classes: Sequence[str | None] | None = None
    groups: Sequence[str | None] | None = None
    several: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    digests: Sequence[bytes | None] | None = None

    def __bool__(self) -> bool:
        return self.classes is not None or self.groups is not None or bool(self.several)

    def take(self, rows: Sequence[int | None]) -> "Facts":
        """Those of some files, in their order; None stands for a file of which nothing is known."""

        def some(values: Sequence[Any] | None) -> list[Any] | None:
            return values and [None if row is None else values[row] for row in rows]

        several = {name: some(cells) for name, cells in self.several.items()}
        return Facts(some(self.classes), some(self.groups), several, some(self.digests))


@dataclass(frozen=True)
class Part:
    """The files of one split. paths: relative to `folder`. facts: of each file."""

    folder: Path
    paths: list[str]
    facts: Facts = Facts()

    @property
    def classes(self) -> Sequence[str | None] | None:
        return self.facts.classes

    def with_classes(self) -> Iterator[tuple[str, str | None]]:
        """The files with their classes; nothing without classes."""
        return zip(self.paths, self.classes or (), strict=False)


def listing(parts: Mapping[str, Part], split: str, where: str, columns: Columns) -> Listing:
    """The files of one split; the classes of all splits are numbered together, see `class_names.match_classes`.

    parts: of every split, "train" first. where: of the source, for messages. columns: its patterns of names count more
        than what the parts say.
    Raises UserError for an unknown split, and for columns that say nothing.
    """
    parts = by_names(parts, columns, where)
    wanted = resolve_split(split, parts)
    check_split(where, wanted, tuple(parts))
    files = parts[wanted]
    groups = _groups(parts, wanted, columns, where)
    about = {"digests": files.facts.digests, "group_values": files.facts.groups}
    listed = Listing(files.folder, files.paths, tuple(parts), groups=groups, **about)
    if files.facts.several:
        several = several_labels(files.facts.several, where)
        return replace(listed, classes=list(files.facts.several), multi_labels=several)
    if columns.reads_numbers and files.classes is not None:
        return replace(listed, **numbers_in_values(files.classes, files.paths, columns, where))
    if columns.label_column and files.classes is not None:
        texts = {name: other.classes or () for name, other in parts.items()}
        if several := labels_in_texts(files.classes, texts, columns.label_column, where):
            return replace(listed, **several)
    names = {name: {label for label in other.classes or () if label is not None} for name, other in parts.items()}
    if not names[wanted]:
        _warn_of_missing_classes(where, wanted, [name for name in parts if names[name]])
        return listed
    of_name = match_classes(names, where)
    classes = in_order(set(of_name.values()))
    _warn_of_splits(where, classes)
    _warn_of_masks(where, classes)
    _warn_of_unlabelled(where, files)
    number = {None: -1, **{name: classes.index(chosen) for name, chosen in of_name.items()}}
    labels = np.array([number[name] for name in files.classes], np.int64)
    return replace(listed, labels=labels, classes=classes)


def _groups(parts: Mapping[str, Part], wanted: str, columns: Columns, where: str) -> np.ndarray | None:
    if columns.group is None and all(files.facts.groups is None for files in parts.values()):
        return None
    columns = columns if columns.group else replace(columns, group="group")  # of a manifest
    check_groups(
        columns, {name: files.facts.groups or [None] * len(files.paths) for name, files in parts.items()}, where
    )
    return group_numbers(parts[wanted].facts.groups, [f"{wanted}/{path}" for path in parts[wanted].paths])


def by_names(parts: Mapping[str, Part], columns: Columns, where: str) -> Mapping[str, Part]:
    """The parts with what patterns of their files' names say: splits, classes and groups.

    Raises UserError for a pattern that matches no name.
    """
    patterns = {option: word for option, word in columns.given if is_pattern(word)}
    if not patterns:
        return parts
    names = [path.replace(os.sep, "/") for files in parts.values() for path in files.paths]
    values = {option: values_of_names(option, word, names, where) for option, word in patterns.items()}
    if len(columns.labels) > 1 and "columns.label" in values:
        refuse(columns, where, "has several columns of labels, and a pattern cannot be one of them")
    fields = {"columns.label": "classes", "columns.group": "groups"}
    changed, start = {}, 0
    for split, files in parts.items():
        span = slice(start, start + len(files.paths))
        facts = {fields[option]: some[span] for option, some in values.items() if option in fields}
        changed[split], start = replace(files, facts=replace(files.facts, **facts)), span.stop
    if "columns.split" not in values:
        return changed
    whole = join_parts(list(changed.values()))
    of_split = rows_of_splits(values["columns.split"], names, where, columns)
    return {
        split: Part(whole.folder, [whole.paths[row] for row in rows], whole.facts.take(rows))
        for split, rows in of_split.items()
    }


def join_parts(parts: Sequence[Part]) -> Part:
    """One part of several, below the folder that all share."""
    folder = os.path.commonpath([os.path.abspath(files.folder) for files in parts])
    paths: list[str] = []
    for files in parts:
        start = os.path.relpath(os.path.abspath(files.folder), folder)
        paths += files.paths if start == "." else [os.path.join(start, path) for path in files.paths]

    def together(name: str) -> list[Any] | None:
        every = [getattr(files.facts, name) for files in parts]
        if all(values is None for values in every):
            return None
        return [v for values, files in zip(every, parts, strict=True) for v in values or [None] * len(files.paths)]

    columns = dict.fromkeys(name for files in parts for name in files.facts.several)
    several = {
        name: [v for files in parts for v in files.facts.several.get(name) or [None] * len(files.paths)]
        for name in columns
    }
    return Part(Path(folder), paths, Facts(together("classes"), together("groups"), several, together("digests")))


def class_folders(paths: Sequence[str], known: Collection[str] = ()) -> list[str | None] | None:
    """The top-level folder of each path; None if a path has none, or there are fewer than two unless all are `known`.

    The class of those in a folder such as `unlabeled` is None. known: classes of another split, whose files are all of
    one class here.
    """
    tops = []
    for path in paths:
        top, separator, _ = path.partition(os.sep)
        if not separator:
            return None
        tops.append(sys.intern(top))
    class_of = {top: None if is_unlabelled(top) else top for top in set(tops)}
    there = {name for name in class_of.values() if name is not None}
    inside = set(map(as_read, there))
    is_divided = len(there) >= 2 or (inside and inside <= set(map(as_read, known)))
    return [class_of[top] for top in tops] if is_divided else None


def part_of(folder: Path, paths: list[str], where: str, top: int = 0, known: Collection[str] = ()) -> Part:
    """Files in folders of classes, or without classes; with a warning if files beside such folders have no label.

    where: of the source, for the warning; "" for none. top: number of folders above those of the classes.
    known: classes of the split that is learned from.
    """
    below = [path.split(os.sep, top)[top] for path in paths] if top else paths
    classes = class_folders(below, known)
    if classes is None:
        _warn_of_files_beside(where, below)
        _warn_of_classes_inside(where, folder, below)
    return Part(folder, paths, Facts(classes))


def splits_of_paths(paths: Sequence[str], columns: Columns, where: str) -> tuple[str, ...]:
    """The splits of files by a pattern of their names, if one is given, or else by their first folders."""
    parts = divide(Path(), paths, "")
    return tuple(by_names(parts, columns, where)) if is_pattern(columns.split) else tuple(parts)


def divide(folder: Path, paths: Sequence[str], where: str) -> dict[str, Part]:
    """The splits of some files by their first folders, as in `folder.open_folder`; undivided ones are all "train".

    where: of the source, for warnings; "" for none.
    """
    of_split: dict[str, list[str]] = {}
    for path in paths:
        top, separator, _ = path.partition(os.sep)
        of_split.setdefault((separator and split_of(top)) or "", []).append(path)
    splits = usual(of_split)
    if not splits:
        return {"train": part_of(folder, list(paths), where)}
    if where and (beside := of_split.get("")):
        remark = f"{counted(len(beside), 'file')} in none of its splits left out, such as {beside[0]}"
        say.warn(f"{where}: {remark}", stacklevel=4)
    learned = part_of(folder, splits.pop("train"), where, top=1)
    train_classes = set(learned.classes or ())
    return {"train": learned} | {
        split: part_of(folder, some, where, 1, train_classes) for split, some in splits.items()
    }


def _warn_of_missing_classes(where: str, split: str, others: Sequence[str]) -> None:
    if others:
        say.warn(f"{where}: its images of {' and '.join(others)} have labels, those of {split} none", stacklevel=4)


def _warn_of_unlabelled(where: str, part: Part) -> None:
    without = [path for path, name in part.with_classes() if name is None and is_unlabelled(path.partition(os.sep)[0])]
    if without:
        folder = without[0].partition(os.sep)[0]
        remark = f"no label for {counted(len(without), 'file')} in {folder}/, which by its name is no class"
        say.warn(f"{where}: {remark}", stacklevel=4)


def _warn_of_files_beside(where: str, paths: Sequence[str]) -> None:
    if not where:
        return
    tops = {path.partition(os.sep)[0] for path in paths if os.sep in path}
    beside = [path for path in paths if os.sep not in path]
    if len(tops) >= 2:
        reason = f"images beside its {len(tops)} folders, such as {beside[0]} ({counted(len(beside), 'image')})"
        say.warn(f"{where} has no labels, for there are {reason}; else the folders would be classes", stacklevel=5)


def _warn_of_splits(where: str, classes: Iterable[str]) -> None:
    if splits := split_like(classes):
        shown = ", ".join(splits[:4])
        say.warn(
            f"{where}: its folders are taken for classes, but some look like splits: {shown}. All of their images are "
            "learned from; to hold some out, call the folders train and test (or val), or name the one to learn from",
            stacklevel=4,
        )


def _warn_of_classes_inside(where: str, folder: Path, paths: Sequence[str]) -> None:
    """Warn of folders that would be classes, were they not in another one that holds all images."""
    inside: set[str] = set()
    for path in paths if where else ():
        top, *below = path.split(os.sep, 2)
        if len(below) < 2 or not path.startswith(f"{paths[0].partition(os.sep)[0]}{os.sep}"):
            return
        inside.add(below[0])
    if len(inside) >= 2 and not any(map(split_of, inside)):
        reason = f"has no labels, for all of its images lie in {top}/; its {len(inside)} folders are classes with"
        say.warn(f"{where} {reason} data={folder / top}", stacklevel=5)


def _warn_of_masks(where: str, classes: Iterable[str]) -> None:
    folders = [name for name in classes if name.lower() in _PICTURES | _MASKS]
    if {name.lower() for name in folders} & _PICTURES and {name.lower() for name in folders} & _MASKS:
        shown = " and ".join(f"{name}/" for name in folders)
        remark = f"{shown} are taken for classes, and all their files learned from; to leave masks out give one folder"
        say.warn(f"{where}: {remark}", stacklevel=4)
