"""The classes of the images in shards: from the label that most samples have, or from the folders of the members."""

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from sslkit.data.sources.class_names import in_order, match_classes
from sslkit.data.sources.label_lists import LabelLists
from sslkit.data.sources.label_values import for_two_classes
from sslkit.data.sources.split_words import is_unlabelled, split_like, split_of
from sslkit.data.sources.tar_index import TarIndex
from sslkit.data.sources.tar_labels import CAPTION, is_class, is_number
from sslkit.data.sources.tar_names import parse
from sslkit.data.sources.tar_samples import Label
from sslkit.terminal import say
from sslkit.terminal.say import counted

_SHOWN = 20  # letters of a wrong label


def labels_of(index: TarIndex, split: np.ndarray, wanted: str, where: str) -> tuple[dict[str, Any], Counter[str]]:
    """Labels of the images of a split, and the number of label files that are not used, by kind.

    labels (n,) int64 or multi_labels (n, K) int8, and classes, those of all splits together; {} without labels.
    Warns of what is used beside .cls files and folders, and of what is not.
    split: (N,) str of each image. where: name of the set, for warnings.
    """
    rows = np.flatnonzero(split == wanted)
    counts = np.bincount(index.label, minlength=len(index.labels))
    sources = [some[0].source if some else "" for some in index.labels]  # "": no label, or no class
    source = _most(index.labels, counts)
    unused: Counter[str] = Counter()
    for kind, number in zip(sources, np.bincount(index.label[rows], minlength=len(sources)).tolist(), strict=True):
        if number and kind not in ("", source):
            unused[_kind(kind)] += number
    arrays: dict[str, Any] = {}
    if source is not None:
        table = [some if kind in ("", source) else None for kind, some in zip(sources, index.labels, strict=True)]
        arrays = _classes(index, table, source, split, where)
    if not arrays:
        return _of_folders(index, split, rows, where), unused
    if source != ".cls":
        say.warn(f"{where}: {_describe(source)}", stacklevel=4)
    return {name: values[rows] if name != "classes" else values for name, values in arrays.items()}, unused


def _most(labels: Sequence[tuple[Label, ...] | None], counts: np.ndarray) -> str | None:
    """The source that labels most images; none of texts in .txt files, which are captions."""
    captions = {label.source for some in labels for label in some or () if label.value == CAPTION}
    uses: Counter[str] = Counter()
    for some, count in zip(labels, counts.tolist(), strict=True):
        if some and some[0].source not in captions:
            uses[some[0].source] += count
    usable = sorted((-count, source) for source, count in uses.items() if count)
    return usable[0][1] if usable else None


def _kind(source: str) -> str:
    """The extension of a label file: `.json`, or `.fine.cls`."""
    return source.partition(" ")[0]


def _describe(source: str) -> str:
    kind, _, key = source.partition(" ")
    return f"its labels are {key!r} in its {kind} members" if key else f"its labels are its {kind} members"


def _classes(
    index: TarIndex, table: Sequence[tuple[Label, ...] | None], source: str, split: np.ndarray, where: str
) -> dict[str, Any]:
    """Labels of all images: numbers, or names if there is no number. table: the labels, None for those not used."""
    used = set(np.unique(index.label).tolist())
    table = [some if number in used else None for number, some in enumerate(table)]
    are_numbers = any(is_number(label.value) for some in table for label in some or ())
    is_right = is_number if are_numbers else is_class
    wrong = [not all(is_right(label.value) for label in some or ()) for some in table]
    if any(wrong):
        _warn_of_wrong(index, table, np.array(wrong)[index.label], source, are_numbers=are_numbers)
    table = [None if is_wrong else some for is_wrong, some in zip(wrong, table, strict=True)]
    of_text = _numbers(table) if are_numbers else _match(index, table, split, where)
    if not any(table):
        return {}
    there = set(of_text.values())
    classes = sorted(there) if are_numbers else in_order(there)
    place_of = {name: number for number, name in enumerate(classes)}
    lists = LabelLists.from_lists(
        [some and sorted({place_of[of_text[label.value]] for label in some}) for some in table]
    )
    none = int(np.array([some is None for some in index.labels])[index.label].sum())
    if classes == [1] and none:
        remark = f"{none:,} of {counted(len(index), 'image')} have no label, as -1 says"
        say.warn(f"{where}: {remark}{for_two_classes(1)}", stacklevel=5)
    return _arrange(index, lists.rows(index.label), classes, are_numbers=are_numbers)


def _numbers(table: Sequence[tuple[Label, ...] | None]) -> dict[str, int]:
    return {label.value: int(label.value) for some in table for label in some or ()}


def _match(index: TarIndex, table: Sequence[tuple[Label, ...] | None], split: np.ndarray, where: str) -> dict[str, str]:
    """The class of each name, see `class_names.match_classes`."""
    places = {name: np.unique(index.label[split == name]).tolist() for name in _in_order(split)}
    return match_classes(
        {name: {label.value for number in some for label in table[number] or ()} for name, some in places.items()},
        where,
    )


def _arrange(index: TarIndex, lists: LabelLists, classes: Sequence[Any], *, are_numbers: bool) -> dict[str, Any]:
    names = list(map(str, classes))
    if lists.are_several:
        return {"multi_labels": lists.indicator(np.arange(len(classes))), "classes": names}
    labels = np.full(len(lists), -1)
    labels[lists.counts == 1] = lists.numbers
    of_folders = _folder_names(index, labels, len(classes)) if are_numbers else None
    return {"labels": labels, "classes": of_folders or names}


def _folder_names(index: TarIndex, labels: np.ndarray, classes: int) -> list[str] | None:
    """The folders of the classes, if all images have a label and each class a folder of its own."""
    tops = _class_folders(index)[0]
    if "" in tops or (labels < 0).any():
        return None
    pairs = sorted(set(zip(labels.tolist(), tops.tolist(), strict=True)))
    return [top for _, top in pairs] if len(pairs) == classes == len(set(tops.tolist())) else None


def _warn_of_wrong(
    index: TarIndex,
    table: Sequence[tuple[Label, ...] | None],
    wrong: np.ndarray,
    source: str,
    *,
    are_numbers: bool,
) -> None:
    row = int(np.argmax(wrong))
    value = (table[index.label[row]] or ())[0].value
    member = f"{parse(index.names[row]).group}{_kind(source)} ({value[:_SHOWN].strip()!r})"
    number = counted(int(wrong.sum()), f"{_kind(source)} file")
    lacks = "no whole number from 0 on" if are_numbers else "no class"
    shard = index.shards[index.shard[row]].name
    say.warn(f"{lacks} in {number}, such as {member} in {shard}: their images have no label", stacklevel=6)


def _of_folders(index: TarIndex, split: np.ndarray, rows: np.ndarray, where: str) -> dict[str, Any]:
    """Labels from the first folders of the members' names that are not the same for all."""
    tops, parts = _class_folders(index)
    _warn_of_parts(parts, split, where)
    different = set(tops.tolist())
    if "" in different and len(different) > 2:
        beside = index.names[int(np.argmax(tops == ""))]
        say.warn(f"{where} has no labels, for there are images beside its folders, such as {beside}", stacklevel=5)
    without = set(map(str, filter(is_unlabelled, different)))
    if "" in different or len(different - without) < 2:
        return {}
    if without:
        number = counted(int(np.isin(tops[rows], list(without)).sum()), "image")
        remark = f"no label for {number} in {', '.join(sorted(without))}/, which by its name is no class"
        say.warn(f"{where}: {remark}", stacklevel=5)
    chosen = match_classes({name: set(tops[split == name].tolist()) - without for name in _in_order(split)}, where)
    classes = in_order(set(chosen.values()))
    if alike := split_like(classes):
        remark = f"its folders are taken for classes, but some look like splits: {', '.join(alike[:4])}"
        say.warn(f"{where}: {remark}. All of their images are learned from", stacklevel=5)
    number = {**dict.fromkeys(without, -1), **{top: classes.index(name) for top, name in chosen.items()}}
    return {"labels": np.array([number[top] for top in tops[rows].tolist()], np.int64), "classes": classes}


def _class_folders(index: TarIndex) -> tuple[np.ndarray, list[str]]:
    """(N,) the folder of each image below those that all share, "" for none, and folders called like splits above."""
    paths = list(index.names.iter_bytes())
    parts: list[str] = []
    while True:
        tops, paths = first_folders(paths)
        names = {top: os.fsdecode(top) for top in set(tops)}
        if not all(map(split_of, names.values())):
            return np.array([names[top] for top in tops]), parts
        parts = sorted(names.values())


def first_folders(paths: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The folder of each path below those that all share, empty for none, and what follows behind it."""
    shared = os.path.commonprefix([min(paths), max(paths)]).rfind(b"/") + 1  # noqa: RUF071  (that of all)
    split = [path[shared:].partition(b"/") for path in paths]
    return [top if slash else b"" for top, slash, _ in split], [below for _, _, below in split]


def _warn_of_parts(parts: Sequence[str], split: np.ndarray, where: str) -> None:
    if parts and len(set(split.tolist())) == 1:
        names = " and ".join(f"{word}/" for word in parts)
        remark = f"{names} in its members' names are read together, held-out images too"
        say.warn(f"{where}: {remark}; to tell them apart, write them as shards with these words", stacklevel=5)


def _in_order(split: np.ndarray) -> list[str]:
    there = set(split.tolist())
    return [name for name in ("train", "val", "test") if name in there]
