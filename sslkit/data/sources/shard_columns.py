"""Labels, splits and groups of the images in shards by the keys of .json members, or by patterns of members' names."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sslkit.data.columns import Columns, group_numbers, is_pattern
from sslkit.data.row_filter import OPTION, columns_of_filter
from sslkit.data.sources.class_names import in_order, match_classes
from sslkit.data.sources.column_values import (
    check_groups,
    filter_rows,
    refuse,
    rows_of_splits,
    several_labels,
    values_of_names,
)
from sslkit.data.sources.label_numbers import numbers_in_values
from sslkit.data.sources.label_texts import labels_in_texts
from sslkit.data.sources.split_words import split_of
from sslkit.data.sources.tar_index import TarIndex
from sslkit.data.sources.tar_samples import Keys
from sslkit.errors import UserError

SPLIT = "split"  # the key that is compared with the splits of the names


def keys_of(columns: Columns, where: str) -> Keys:
    """The keys that the index needs. Raises UserError for a column of images."""
    if columns.image is not None:
        refuse(Columns(image=columns.image), where, "is shards, whose images are members")
    labels = tuple(word for word in columns.labels if not is_pattern(word))
    words = (columns.split_column, columns.group)
    others = (*(word for word in words if word and not is_pattern(word)), *columns_of_filter(columns.where))
    others = (*others, SPLIT) if columns.split is None else others
    several = labels if len(columns.labels) > 1 or columns.reads_numbers else ()
    return Keys(() if several else labels, tuple(dict.fromkeys((*others, *several))))


def values_of(index: TarIndex, columns: Columns, option: str, word: str, where: str) -> list[str | None]:
    """The value of each image. Raises UserError for a key that no .json has, and a pattern that matches no name."""
    if is_pattern(word):
        return values_of_names(option, word, [index.names[row] for row in range(len(index))], where)
    position = keys_of(columns, where).cells.index(word)
    values = np.array([cells[position] for cells in index.cells], object)[index.cell].tolist()
    if not any(value is not None for value in values):
        raise UserError(f"{option}={word}: no .json member of {where} beside an image has this key")
    return values


def filter_index(index: TarIndex, columns: Columns, where: str) -> TarIndex:
    """The rows that are read, see `column_values.filter_rows`."""
    if columns.where is None:
        return index
    rows = filter_rows(columns, lambda key: values_of(index, columns, OPTION, key, where), len(index), where)
    return index.rows(np.array(rows, np.int64))


def line_of_other_splits(index: TarIndex, split: np.ndarray, columns: Columns, where: str) -> str:
    """A line on splits in the .json members that are not those that are read; "" for none. split: of each image."""
    if columns.split is not None:
        return ""
    position = keys_of(columns, where).cells.index(SPLIT)
    words = np.array([cells[position] or "" for cells in index.cells])[index.cell]
    for name in dict.fromkeys(split.tolist()):
        others = {split_of(word) for word in set(words[split == name].tolist())} - {None, name}
        if name and others and others | {name} != {"val", "test"}:
            return f"the key {SPLIT!r} of its .json members says other splits; columns.split={SPLIT} reads it"
    return ""


def split_by_columns(index: TarIndex, columns: Columns, where: str) -> tuple[tuple[str, ...], np.ndarray]:
    """The splits, and that of each row, (N,) str, "" for none."""
    words = values_of(index, columns, "columns.split", columns.split_column, where)
    of_split = rows_of_splits(words, index.names, where, columns)
    split = np.full(len(index), "", dtype="U5")
    for name, rows in of_split.items():
        split[rows] = name
    return tuple(of_split), split


def groups_of(
    index: TarIndex, split: np.ndarray, splits: tuple[str, ...], wanted: str, columns: Columns, where: str
) -> np.ndarray | None:
    """(n,) int64 of the images of a split; None without a column. split: (N,) str of each image."""
    if columns.group is None:
        return None
    values = np.array(values_of(index, columns, "columns.group", columns.group, where), object)
    check_groups(columns, {name: values[split == name].tolist() for name in splits}, where)
    rows = np.flatnonzero(split == wanted)
    return group_numbers(values[rows].tolist(), [f"{wanted}/{index.names[row]}" for row in rows.tolist()])


def labels_by_columns(
    index: TarIndex, split: np.ndarray, wanted: str, columns: Columns, where: str
) -> Mapping[str, Any] | None:
    """Labels and classes as of `shard_labels.labels_of`, by a pattern, several keys, or one whose texts hold several.

    None for another key, or none.
    """
    rows = split == wanted
    if len(columns.labels) > 1:
        cells = {word: values_of(index, columns, "columns.label", word, where) for word in columns.labels}
        return {"multi_labels": several_labels(cells, where)[rows], "classes": list(cells)}
    if columns.reads_numbers:
        if not columns.labels:
            raise UserError(f"columns.label_kind=number: name the key of the .json members of {where}, columns.label=")
        values = np.array(values_of(index, columns, "columns.label", columns.labels[0], where), object)[rows].tolist()
        names = [index.names[row] for row in np.flatnonzero(rows).tolist()]
        return numbers_in_values(values, names, columns, where)
    if columns.label_column:
        texts = np.array([some[0].value if some and len(some) == 1 else None for some in index.labels], object)
        values = texts[index.label]
        of_split = {name: values[split == name].tolist() for name in dict.fromkeys(split.tolist())}
        return labels_in_texts(values[rows].tolist(), of_split, columns.label_column, where)
    if not columns.labels:
        return None
    names = np.array(values_of(index, columns, "columns.label", columns.labels[0], where), object)
    of_split = {name: {value for value in names[split == name] if value} for name in dict.fromkeys(split.tolist())}
    of_name = match_classes(of_split, where)
    classes = in_order(set(of_name.values()))
    number = {None: -1, "": -1, **{name: classes.index(chosen) for name, chosen in of_name.items()}}
    return {"labels": np.array([number[name] for name in names[rows]], np.int64), "classes": classes}
