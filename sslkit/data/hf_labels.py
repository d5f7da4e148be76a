"""The classes of the rows of a Hugging Face data set, from its columns."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from sslkit.data.label_lists import LabelLists

NAMES = ("label", "labels")  # of the column that holds the classes, if there are several that could
Column = Any  # pyarrow.ChunkedArray


def labels_of(table: Any, tables: Sequence[Any], name: str) -> dict[str, Any]:
    """labels (N,) int64, -1 for unlabelled rows, or multi_labels (N, K) int8, and classes; {} without labels.

    table: the split. tables: all splits; the classes of plain integers and texts are those of all of them together.
    The column of classes (ClassLabel) is used, or of several the one named label or labels; without one, a column
    label or labels of whole numbers, -1 for none, of yes or no, or of texts. A column of lists gives each row several
    classes.
    name: of the data set, in the warning that no column of several is used.
    """
    import datasets

    kinds = {column: getattr(kind, "feature", kind) for column, kind in table.features.items()}  # of a list: its items
    classes = [column for column, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)]
    named = [column for column in NAMES if column in classes]
    if len(classes) > 1 and not named:
        warnings.warn(f"{name} has several columns of classes, {', '.join(classes)}, and none is used", stacklevel=5)
        return {}
    if classes:
        column = (named or classes)[0]
        several = hasattr(table.features[column], "feature")
        return _numbered(_column(table, column), list(kinds[column].names), several)
    column = next((column for column in NAMES if _is_plain(kinds.get(column))), None)
    if column is None:
        return {}
    alike = [one for one in tables if one.features.get(column) == table.features[column]]
    found = {value for one in alike for value in _distinct(_column(one, column))}
    values = sorted(value for value in found if not (isinstance(value, int) and value < 0))
    if not values:
        return {}
    return _found_in(values, _column(table, column), several=hasattr(table.features[column], "feature"))


def _column(table: Any, column: str) -> Column:
    return table.select_columns([column]).with_format("arrow")[:][column]


def _is_plain(kind: Any) -> bool:
    """True for whole numbers, yes or no, and texts."""
    dtype = getattr(kind, "dtype", None)
    return isinstance(dtype, str) and (dtype.startswith(("int", "uint")) or dtype in ("bool", "string", "large_string"))


def _distinct(values: Column) -> list[Any]:
    import pyarrow.compute
    import pyarrow.types

    flat = pyarrow.compute.list_flatten(values) if pyarrow.types.is_nested(values.type) else values
    return [one for one in flat.unique().to_pylist() if one is not None]


def _numbered(values: Column, names: list[str], several: bool) -> dict[str, Any]:
    """The labels of a column of class numbers, of which -1 and missing ones are none."""
    if several:
        lists = [one and [number for number in one if number is not None and number >= 0] for one in values.to_pylist()]
        return {"multi_labels": LabelLists.of(lists).indicator(np.arange(len(names))), "classes": names}
    labels = values.fill_null(-1).to_numpy().astype(np.int64)
    return {"labels": labels, "classes": names} if (labels >= 0).any() else {}


def _found_in(classes: list[Any], values: Column, several: bool) -> dict[str, Any]:
    """The labels of a column of values, each one of `classes`, or none."""
    number = {value: place for place, value in enumerate(classes)}
    names = list(map(str, classes))
    if several:
        lists = [
            None if one is None else [number[value] for value in one if value in number] for one in values.to_pylist()
        ]
        return {"multi_labels": LabelLists.of(lists).indicator(np.arange(len(names))), "classes": names}
    labels = np.array([number.get(value, -1) for value in values.to_pylist()], np.int64)
    return {"labels": labels, "classes": names} if (labels >= 0).any() else {}
