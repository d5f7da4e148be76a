"""Labels that are numbers, as an age or an angle, from the values of a column that `columns.label_kind` says so of."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sslkit.data.columns import Columns, has_value, is_pattern
from sslkit.errors import UserError

_NOTHING = frozenset(("nan", "none", "null", "na", "n/a", "<na>", "#n/a"))  # as tables are written without a number
_LETTERS = 40  # of a wrong value in a message
UNNAMED = "number"  # the name of numbers that no column names


def numbers_in_values(values: Sequence[Any], names: Sequence[str], columns: Columns, where: str) -> dict[str, Any]:
    """Return `numbers` (N,) float64, NaN for a missing one, and `classes`, their name; as of `data.images.Identity`.

    values: of each image. names: of the rows, for messages. where: of the data, likewise.
    Raises UserError for a text that is no number, and for infinite ones, with the row and its value.
    """
    numbers = np.array([_number(value, name, where) for value, name in zip(values, names, strict=True)], np.float64)
    return {"numbers": numbers, "classes": [name_of_numbers(columns)]}


def name_of_numbers(columns: Columns) -> str:
    """Return the column's name; UNNAMED without a column."""
    return UNNAMED if not columns.labels or is_pattern(columns.labels[0]) else columns.labels[0]


def _number(value: Any, name: str, where: str) -> float:
    if not has_value(value) or str(value).strip().lower() in _NOTHING:
        return math.nan
    try:
        number = math.inf if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.inf
    if not math.isfinite(number):
        raise UserError(
            f"{where}, {name}: the label {str(value)[:_LETTERS]!r} is no finite number, and columns.label_kind=number "
            "reads numbers: empty the cell, or leave the row out with columns.where"
        )
    return number
