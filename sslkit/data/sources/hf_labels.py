"""The classes of the rows of a Hugging Face data set, from its columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sslkit.data.columns import NO_COLUMNS, Columns
from sslkit.data.sources.column_values import several_labels
from sslkit.data.sources.label_lists import LabelLists
from sslkit.data.sources.label_numbers import numbers_in_values
from sslkit.data.sources.label_texts import labels_in_texts
from sslkit.data.sources.label_values import Measured, classes_of_splits
from sslkit.errors import UserError
from sslkit.terminal import say

NAMES = ("label", "labels")  # of the column that holds the classes, if there are several that could
Column = Any  # pyarrow.ChunkedArray


def labels_of(table: Any, tables: Sequence[Any], name: str, wanted: Columns = NO_COLUMNS) -> dict[str, Any]:
    """labels (N,) int64, -1 for unlabelled rows, or multi_labels (N, K) int8, and classes; {} without labels.

    table: the split. tables: all splits; the classes of plain integers and texts are those of all of them together.
    The column of classes (ClassLabel) is used, or of several the one named label or labels; without one, a column
    label or labels of whole numbers (2.0 is one, too), -1 for none, of yes or no, or of texts. A column of lists gives
    each row several classes.
    name: of the data set, in the warnings that a column is not used: one of measurements, or another kind.
    wanted: whose labels are the column, () for the usual one, or several of yes or no, one for each class.
    Raises UserError for several columns of classes without a usual name.
    """
    import datasets

    if len(wanted.labels) > 1:
        cells = {column: _column(table, column).to_pylist() for column in wanted.labels}
        return {"multi_labels": several_labels(cells, name), "classes": list(wanted.labels)}
    label = next(iter(wanted.labels), None)
    kinds = {column: getattr(kind, "feature", kind) for column, kind in table.features.items()}  # of a list: its items
    names = NAMES if label is None else (label,)
    kinds = kinds if label is None else {label: kinds[label]}
    if wanted.reads_numbers:
        return _numbers(table, next((column for column in names if column in kinds), None), wanted, name)
    classes = [column for column, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)]
    named = [column for column in names if column in classes]
    if len(classes) > 1 and not named:
        which, first = ", ".join(classes), classes[0]
        raise UserError(f"{name} has several columns of classes, {which}: name the label, columns.label={first}")
    if classes:
        column = (named or classes)[0]
        several = hasattr(table.features[column], "feature")
        return _labels_of_numbers(_column(table, column), list(kinds[column].names), several)
    column = next((column for column in names if _is_plain(kinds.get(column))), None)
    if column is None:
        _warn_of_unusable(kinds, names, name)
        return {}
    alike = [other for other in tables if _kind(other.features.get(column)) == _kind(table.features[column])]
    are_lists = hasattr(table.features[column], "feature")
    if label is not None and _kind(table.features[column]) == "text" and not are_lists:
        texts = {str(k): _column(other, column).to_pylist() for k, other in enumerate(alike)}
        if several := labels_in_texts(_column(table, column).to_pylist(), texts, column, name):
            return several
    try:
        of_value = classes_of_splits(
            {str(k): _count_values(_column(other, column)) for k, other in enumerate(alike)}, name
        )
    except Measured as error:
        error.tell(f"its column {column} holds", name, wanted)
        return {}
    return _labels_of_values(of_value, _column(table, column), several=are_lists)


def _numbers(table: Any, column: str | None, columns: Columns, name: str) -> dict[str, Any]:
    """The numbers in a column; {} without one."""
    if column is None:
        return {}
    if "ClassLabel" in str(table.features[column]):
        raise UserError(f"columns.label_kind=number: the column {column} of {name} holds classes by their names")
    return numbers_in_values(_column(table, column).to_pylist(), [f"row {k}" for k in range(len(table))], columns, name)


def _column(table: Any, column: str) -> Column:
    return table.select_columns([column]).with_format("arrow")[:][column]


def _is_plain(kind: Any) -> bool:
    """True for numbers, yes or no, and texts."""
    return _kind(kind) is not None


def _kind(kind: Any) -> str | None:
    """`number`, `yes or no` or `text`, of a column or, for lists, of their items; None for anything else."""
    dtype = getattr(getattr(kind, "feature", kind), "dtype", None)
    if not isinstance(dtype, str):
        return None
    if dtype.startswith(("int", "uint", "float")):
        return "number"
    return {"bool": "yes or no", "string": "text", "large_string": "text"}.get(dtype)


def _warn_of_unusable(kinds: dict[str, Any], names: Sequence[str], name: str) -> None:
    others = [column for column, kind in kinds.items() if _is_plain(kind)]
    if others and not kinds.keys() & set(names):
        first = others[0]
        reason = f"has no labels, for no column is called label: columns.label={first} reads those of {first}"
        say.warn(f"{name} {reason}", stacklevel=5)
    for column in names:
        if column in kinds:
            reason = f"its column {column} is of {type(kinds[column]).__name__}, which gives no classes"
            say.warn(f"{name}: {reason}, and is not used", stacklevel=5)


def _count_values(values: Column) -> dict[Any, int]:
    """Return how often each value occurs, missing ones left out."""
    import pyarrow.compute
    import pyarrow.types

    flat = pyarrow.compute.list_flatten(values) if pyarrow.types.is_nested(values.type) else values
    return {
        entry["values"]: entry["counts"] for entry in flat.value_counts().to_pylist() if entry["values"] is not None
    }


def _labels_of_numbers(values: Column, names: list[str], several: bool) -> dict[str, Any]:
    """The labels of a column of class numbers, of which -1 and missing ones are none."""
    if several:
        lists = [row and [number for number in row if number is not None and number >= 0] for row in values.to_pylist()]
        return {"multi_labels": LabelLists.from_lists(lists).indicator(np.arange(len(names))), "classes": names}
    labels = values.fill_null(-1).to_numpy().astype(np.int64)
    return {"labels": labels, "classes": names} if (labels >= 0).any() else {}


def _labels_of_values(of_value: dict[Any, Any], values: Column, several: bool) -> dict[str, Any]:
    """The labels of a column. of_value: the class of each of its values, None for none, see `classes_of_splits`."""
    classes = sorted({label for label in of_value.values() if label is not None})
    if not classes:
        return {}
    position = {label: number for number, label in enumerate(classes)}
    number = {value: position[label] for value, label in of_value.items() if label is not None}
    names = list(map(str, classes))
    if several:
        lists = [
            None if row is None else [number[value] for value in row if value in number] for row in values.to_pylist()
        ]
        return {"multi_labels": LabelLists.from_lists(lists).indicator(np.arange(len(names))), "classes": names}
    labels = np.array([number.get(value, -1) for value in values.to_pylist()], np.int64)
    return {"labels": labels, "classes": names} if (labels >= 0).any() else {}
