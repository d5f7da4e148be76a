"""Classes from the values of a column: whole numbers, also written as floats or texts, yes or no, and texts."""

import math
import re
from collections.abc import Hashable, Iterable, Mapping
from itertools import chain
from typing import Any

from sslkit.data.sources.class_names import matched

_NUMBER = re.compile(r"[+-]?(0|[1-9]\d{0,17})(\.\d*)?(e[+-]?\d{1,2})?", re.IGNORECASE)  # not 007, which is a code


def classes_of(values: Iterable[Hashable]) -> dict[Any, Any]:
    """The class of each different value: None for a missing and an empty one, NaN, and a negative number.

    Numbers become whole ones, so that 2.0 and 2 are one class; texts too where all are numbers.
    Raises Measured if there are numbers with fractions.
    """
    different = set(values)
    known = [value for value in different if not _is_missing(value)]
    numbers: Mapping[Any, Any] = {value: value for value in known}
    if all(isinstance(value, str) and _NUMBER.fullmatch(value.strip()) for value in known):
        numbers = {value: float(value) for value in known}
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in numbers.values()):
        fractions = [number for number in numbers.values() if not float(number).is_integer()]
        if fractions:
            raise Measured(f"{min(fractions):g}")
        numbers = {value: int(number) if number >= 0 else None for value, number in numbers.items()}
    return {value: numbers.get(value) for value in different}


def classes_of_splits(values: Mapping[str, Iterable[Hashable]], where: str) -> dict[Any, Any]:
    """The `classes_of` the values in all splits, "train" first; texts are matched as the names of folders are."""
    of_value = classes_of(chain.from_iterable(values.values()))
    texts = {split: {of_value.get(one) for one in some} for split, some in values.items()}
    texts = {split: {one for one in some if isinstance(one, str)} for split, some in texts.items()}
    of_text = matched(texts, where)
    return {value: of_text.get(one, one) for value, one in of_value.items()}


class Measured(ValueError):
    """The values are measurements, not classes; the message is one of them."""


def _is_missing(value: Any) -> bool:
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and not value.strip())
    )
