"""The columns of a Hugging Face data set that hold images, splits and groups."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sslkit.data.columns import Columns, group_numbers, is_pattern
from sslkit.data.row_filter import OPTION
from sslkit.data.sources.column_values import check_groups, check_names, filter_rows, rows_of_splits
from sslkit.data.sources.file_tables import COLUMNS
from sslkit.data.sources.split_words import split_of
from sslkit.errors import UserError, nearest
from sslkit.terminal import say


def divide_table(tables: Mapping[str, Any], columns: Columns, name: str) -> dict[str, Any]:
    """The rows of a data set of one table by its column of splits. Raises UserError for several tables."""
    if len(tables) > 1:
        raise UserError(
            f"columns.split={columns.split}: {name} has the splits {', '.join(tables)} already, which are read"
        )
    table = next(iter(tables.values()))
    check_columns(table, columns, name)
    words = _values(table, columns.split_column)
    rows = rows_of_splits(words, [f"row {row}" for row in range(len(words))], name, columns)
    return {split: table.select(some) for split, some in rows.items()}


def warn_of_other_splits(tables: Mapping[str, Any], name: str) -> None:
    """Say whether a column of a usual name has other splits than those that are read. tables: by these."""
    for split, table in tables.items():
        columns = getattr(table, "features", None) or () if hasattr(table, "__len__") else ()  # streamed: refused
        column = next((column for column in columns if column.lower() in COLUMNS["split"]), None)
        words = {split_of(str(word)) for word in _values(table, column)} if column else set()
        if (others := words - {None, split}) and others | {split} != {"val", "test"}:
            read = f"columns.split={column} reads it" if len(tables) == 1 else "its own splits are read"
            say.warn(f"{name}: its column {column} says other splits; {read}", stacklevel=5)
            return


def filter_tables(tables: Mapping[str, Any], columns: Columns, name: str) -> dict[str, Any]:
    """The rows of each table that are read; a table without any is left out. Raises UserError as `filter_rows` does."""
    if columns.where is None or not all(hasattr(table, "__len__") for table in tables.values()):  # streamed: refused
        return dict(tables)

    def cells(column: str) -> list[Any]:
        for table in tables.values():
            if column not in table.features:
                raise UserError(
                    f"{OPTION}={columns.where!r}: {name} has no column {column!r}: {nearest(column, table.features)}"
                )
        return [value for table in tables.values() for value in _texts(table, column)]

    lengths = list(map(len, tables.values()))
    mask = np.zeros(sum(lengths), bool)
    mask[filter_rows(columns, cells, len(mask), name)] = True
    parts = np.split(mask, np.cumsum(lengths)[:-1])
    return {
        split: table.select(np.flatnonzero(rows))
        for (split, table), rows in zip(tables.items(), parts, strict=True)
        if rows.any()
    }


def _texts(table: Any, column: str) -> list[Any]:
    """The values of a column; of one of classes their names."""
    names = getattr(table.features[column], "names", None)
    values = _values(table, column)
    return [names[value] if names and value is not None and value >= 0 else value for value in values]


def groups_of(tables: Mapping[str, Any], split: str, columns: Columns, name: str) -> np.ndarray | None:
    if columns.group is None:
        return None
    values = {
        other: _values(table, columns.group) if columns.group in table.features else [None] * len(table)
        for other, table in tables.items()
    }
    check_groups(columns, values, name)
    return group_numbers(values[split], [f"{split}/{row}" for row in range(len(values[split]))])


def _values(table: Any, column: str) -> list[Any]:
    return table.select_columns([column]).with_format("arrow")[:][column].to_pylist()


def check_columns(table: Any, columns: Columns, name: str) -> None:
    """Raises UserError for a column that is not there, and for a pattern: rows have no names."""
    check_names(columns, table.features, name)
    if pattern := next(((option, word) for option, word in columns.given if is_pattern(word)), None):
        option, word = pattern
        raise UserError(f"{option}={word!r}: rows of {name} have no names; its columns are {', '.join(table.features)}")


def image_column(table: Any, columns: Columns, name: str) -> str:
    import datasets

    images = [column for column, kind in table.features.items() if isinstance(kind, datasets.Image)]
    if not images:
        raise UserError(f"{name} has no column of images: its columns are {', '.join(table.features)}")
    if columns.image is not None and columns.image not in images:
        raise UserError(f"columns.image={columns.image}: {name} has images in {', '.join(images)}")
    if columns.image is None and len(images) > 1:
        raise UserError(
            f"{name} has several columns of images, {', '.join(images)}: columns.image={images[0]} names one"
        )
    return columns.image or images[0]
