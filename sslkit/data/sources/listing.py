"""The files of one split of a source, with their labels from folders of classes or from a column."""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sslkit.data.images import check_split
from sslkit.data.sources.class_names import as_read, match_classes
from sslkit.data.sources.split_words import is_unlabelled, resolve_split, split_like, split_of, usual
from sslkit.terminal import say
from sslkit.terminal.say import counted

_DIGITS = 19  # of a class that is a number
_PICTURES = frozenset(("image", "images", "img", "imgs", "jpegimages"))  # folders of data sets of masks
_MASKS = frozenset(("mask", "masks", "label", "labels", "annotation", "annotations", "gt", "segmentation"))


@dataclass(frozen=True)
class Listing:
    """The files of a split. folder: of the split. paths: relative to it, sorted. splits: of the source.

    labels: (N,) int64, -1 for none, and classes: their names; None without classes.
    """

    folder: Path
    paths: list[str]
    splits: tuple[str, ...]
    labels: np.ndarray | None
    classes: list[str] | None


@dataclass(frozen=True)
class Part:
    """The files of one split. paths: relative to `folder`. classes: of each file, None for none; or None altogether."""

    folder: Path
    paths: list[str]
    classes: Sequence[str | None] | None

    def with_classes(self) -> Iterator[tuple[str, str | None]]:
        """The files with their classes; nothing without classes."""
        return zip(self.paths, self.classes or (), strict=False)


def listing(parts: Mapping[str, Part], split: str, where: str) -> Listing:
    """The files of one split; the classes of all splits are numbered together, see `class_names.match_classes`.

    parts: of every split, "train" first. where: of the source, for messages.
    Raises UserError for an unknown split.
    """
    wanted = resolve_split(split, parts)
    check_split(where, wanted, tuple(parts))
    files = parts[wanted]
    names = {name: {label for label in other.classes or () if label is not None} for name, other in parts.items()}
    if not names[wanted]:
        _warn_of_missing_classes(where, wanted, [name for name in parts if names[name]])
        return Listing(files.folder, files.paths, tuple(parts), None, None)
    of_name = match_classes(names, where)
    classes = in_order(set(of_name.values()))
    _warn_of_splits(where, classes)
    _warn_of_masks(where, classes)
    _warn_of_unlabelled(where, files)
    number = {None: -1, **{name: classes.index(chosen) for name, chosen in of_name.items()}}
    labels = np.array([number[name] for name in files.classes], np.int64)
    return Listing(files.folder, files.paths, tuple(parts), labels, classes)


def in_order(classes: Collection[str]) -> list[str]:
    """Classes by name; by value if all are whole numbers."""
    are_numbers = all(name.isdecimal() and len(name) < _DIGITS for name in classes)
    return sorted(classes, key=lambda name: (int(name), name) if are_numbers else name)


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
    return Part(folder, paths, classes)


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
