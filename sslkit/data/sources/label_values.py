"""Classes from the values of a column: whole numbers, also written as floats or texts, yes or no, and texts."""

import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from itertools import chain
from typing import Any

from sslkit.data.columns import Columns
from sslkit.data.sources.class_names import as_read, list_names, match_classes
from sslkit.errors import UserError
from sslkit.terminal import say

_NUMBER = re.compile(r"[+-]?(0|[1-9]\d{0,17})(\.\d*)?(e[+-]?\d{1,2})?", re.IGNORECASE)  # not 007, which is a code
_NOTHING = frozenset(
    ("nan", "null", "none", "na", "n/a", "<na>", "#n/a", "unlabeled", "unlabelled")
)  # as tables are written without a label
AS_NUMBERS = "columns.label_kind=number reads them"  # behind a line on numbers that are no classes
_BETWEEN = re.compile("[|;,]")  # the names of several classes in one text


def classes_of(values: Iterable[Hashable], where: str) -> dict[Any, Any]:
    """The class of each different value: None for a missing and an empty one, NaN, and a negative number.

    Numbers become whole ones, so that 2.0 and 2 are one class; texts too where all are numbers, and `nan` or `None`
    among these is missing. A warning names texts that look like no class or several, and counts negative numbers.
    values: one for each label, or a mapping to how often each occurs. where: of the data, for warnings.
    Raises Measured if there are numbers with fractions.
    """
    different = Counter(values)
    present = [value for value in different if not _is_missing(value)]
    named = [value for value in present if not _says_nothing(value)]
    numbers: Mapping[Any, Any] = {value: value for value in present}
    if named and all(isinstance(value, str) and _NUMBER.fullmatch(value.strip()) for value in named):
        numbers = {value: float(value) for value in named}
    else:
        _warn_of_doubtful(sorted(value for value in present if isinstance(value, str)), where)
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in numbers.values()):
        fractions = [number for number in numbers.values() if not float(number).is_integer()]
        if fractions:
            raise Measured(f"{min(fractions):g}")
        warn_of_negative([(number, different[value]) for value, number in numbers.items()], where)
        numbers = {value: int(number) if number >= 0 else None for value, number in numbers.items()}
    return {value: numbers.get(value) for value in different}


def classes_of_splits(values: Mapping[str, Iterable[Hashable]], where: str) -> dict[Any, Any]:
    """The `classes_of` the values in all splits, "train" first; texts are matched as the names of folders are."""
    of_value = classes_of(sum(map(Counter, values.values()), Counter()), where)
    texts = {split: {of_value.get(value) for value in some} for split, some in values.items()}
    texts = {split: {value for value in some if isinstance(value, str)} for split, some in texts.items()}
    of_text = match_classes(texts, where)
    return {value: of_text.get(label, label) for value, label in of_value.items()}


def warn_of_negative(numbers: Iterable[tuple[float, int]], where: str) -> None:
    """Warn if labels are negative, which means none: -1 and 1 could be meant as two classes.

    numbers: each, and how often it occurs.
    """
    counts: Counter[int] = Counter()
    for number, count in numbers:
        counts[int(number)] += count
    classes = [number for number in counts if number >= 0]
    if len(classes) < len(counts):
        negative = counts.total() - sum(counts[number] for number in classes)
        reason = f"{negative:,} of {counts.total():,} labels are negative, which means none"
        say.warn(f"{where}: {reason}{for_two_classes(classes[0]) if len(classes) == 1 else ''}", stacklevel=4)


def for_two_classes(only: object) -> str:
    """The end of a line on labels that are none, where all others are of one class."""
    return f", and all others are {only}: for two classes write 0 and 1"


class Measured(ValueError):
    """The values are measurements, not classes; the message is one of them."""

    def tell(self, what: str, where: str, columns: Columns) -> None:
        """Say that labels are not used. what: they are. Raises UserError for those of a column that is named."""
        reason = f"{where}: {what} numbers such as {self}, which are no classes"
        if columns.labels:
            raise UserError(f"{reason}; {AS_NUMBERS}")
        say.warn(f"{reason}, and not used; {AS_NUMBERS}", stacklevel=6)


def _says_nothing(value: Any) -> bool:
    return isinstance(value, str) and as_read(value) in _NOTHING


def _warn_of_doubtful(names: Collection[str], where: str) -> None:
    if nothing := [repr(name) for name in names if _says_nothing(name)]:
        remark = f"read as a class: {list_names(nothing)}; leave the labels of images without one empty"
        say.warn(f"{where}: {remark}", stacklevel=4)
    parts = {name: {as_read(piece.strip(" []()'\"")) for piece in _BETWEEN.split(name)} for name in names}
    uses = Counter(chain.from_iterable(parts.values()))
    several = {name: some for name, some in parts.items() if len(some) > 1}
    lists = [repr(name) for name, some in several.items() if name[0] == "[" or min(uses[piece] for piece in some) > 1]
    if lists:
        remark = "looks like several classes and is read as one: columns.label= with the column's name reads several"
        say.warn(f"{where}: {list_names(lists)} {remark}", stacklevel=4)


def _is_missing(value: Any) -> bool:
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and not value.strip())
    )
