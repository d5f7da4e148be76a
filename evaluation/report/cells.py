"""Elements of a page: numbers with their origin, and tables of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evaluation.results import unseen
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate, share

NOTHING = "–"
OUTSIDE = " †"  # at the names of models from outside the zoo


@dataclass(frozen=True)
class Cell:
    """text: the shown text. how: lines on its origin, shown on hover, focus and tap; "" for plain text.

    key: sort key; None sorts by the text, "" sorts last. aside: additional text for screen readers. link: the id of
    the part of the page that the text leads to.
    """

    text: str
    how: str = ""
    key: float | str | None = None
    aside: str = ""
    link: str = ""

    @property
    def sort_key(self) -> str:
        return self.text.casefold() if self.key is None else str(self.key)


@dataclass(frozen=True)
class Column:
    """number: sort as a number and align right."""

    name: str
    how: str = ""
    number: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells, the first of which names the row. caption: also for screen readers."""

    caption: str
    columns: list[Column]
    rows: list[list[Cell]]


MISSING = Cell(NOTHING, key="", aside="not known")


def provenance(**facts: Any) -> str:
    """Return lines "name: value" on the origin of a number, without unknown values."""
    return "\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items() if value not in (None, ""))


def of_share(value: Any, n: Any) -> Estimate | None:
    """Return an accuracy of a card with its Wilson interval, None if it is missing. n: images."""
    if not is_number(value):
        return None
    if not is_number(n) or n < 1 or not 0 <= value <= 1:
        return Estimate(float(value))
    return replace(share(np.arange(int(n)) < round(value * n)), value=float(value))


def of_estimate(estimate: Estimate | None, how: str, digits: int = 1) -> Cell:
    """Make a cell of a number and the ends of its interval. digits: decimals, the same for all alike of a column."""
    if estimate is None:
        return MISSING
    scale, unit = (100, " %") if estimate.unit == "fraction" else (1, f" {estimate.unit}".rstrip())
    ends = [f"{scale * end:.{digits}f}" for end in estimate.interval or ()]
    shown = f" ({' to '.join(ends)})" if ends else ""
    return Cell(f"{scale * estimate.value:.{digits}f}{unit}{shown}", how, estimate.value)


def of_result(result: Result, how: str, digits: int = 1) -> Cell:
    """Make a cell of a result; where test images were trained on it says so, and has the number without these."""
    cell = of_estimate(result.estimate, how, digits)
    return replace(cell, text=cell.text + unseen.describe(result, lambda other: of_estimate(other, "", digits).text))


def decimals(values: Sequence[float], unit: str) -> int:
    """Return the decimals of alike numbers: one for per cent, else three significant digits of the largest."""
    largest = max(map(abs, values), default=0.0)
    if unit == "fraction" or not largest:
        return 1
    return min(6, max(0, 2 - math.floor(math.log10(largest))))


def of_number(value: Any, form: str, how: str, *, scale: float = 1) -> Cell:
    """Make a cell of a number. form: a format such as "{:.1f} s". scale: 100 for per cent, 1000 for thousandths."""
    return Cell(form.format(scale * value), how, float(scale * value)) if is_number(value) else MISSING


def of_text(value: Any) -> Cell:
    return MISSING if value in (None, "", [], {}) else Cell(str(value))


def of_seconds(value: Any, how: str) -> Cell:
    digits = 0 if not is_number(value) or value >= 100 else 1 if value >= 10 else 2
    return of_number(value, f"{{:,.{digits}f}} s", how)


def of_bytes(value: Any, how: str) -> Cell:
    """Make a cell of a size, in decimal units as for disks."""
    if not is_number(value):
        return MISSING
    size, unit, digits = (1e9, "GB", 1) if value >= 1e9 else (1e6, "MB", 1) if value >= 1e6 else (1e3, "kB", 0)
    return Cell(f"{value / size:.{digits}f} {unit}", how, float(value))


def is_number(value: Any) -> bool:
    """Return True for a finite number that is not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and bool(np.isfinite(value))


def dig(tree: Any, *path: str) -> Any:
    """Return the value at a path of a card, None if it is missing: cards of other versions lack parts."""
    for key in path:
        if not isinstance(tree, Mapping) or key not in tree:
            return None
        tree = tree[key]
    return tree
