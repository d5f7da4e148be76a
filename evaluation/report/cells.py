"""What a page is made of: numbers that say how they were made, and tables of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evaluation.results.statistics import Estimate, share
from evaluation.results.tables import with_interval

NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """text: what is shown. how: lines that say how it was made, shown on hover, focus and tap; "" for plain text.

    key: what a column is sorted by, the text where it is None, last where it is "". aside: what a screen reader adds.
    """

    text: str
    how: str = ""
    key: float | str | None = None
    aside: str = ""

    @property
    def sort_key(self) -> str:
        return self.text.casefold() if self.key is None else str(self.key)


@dataclass(frozen=True)
class Column:
    """number: sorted as a number and set at the right."""

    name: str
    how: str = ""
    number: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells, the first of which names the row. caption: what it shows, for readers and screen readers."""

    caption: str
    columns: list[Column]
    rows: list[list[Cell]]


MISSING = Cell(NOTHING, key="", aside="not known")


def made(**facts: Any) -> str:
    """Lines "name: value" of how a number was made; what is not known is left out."""
    return "\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items() if value not in (None, ""))


def of_share(value: Any, n: Any) -> Estimate | None:
    """An accuracy of a card with its Wilson interval; None where there is none. n: images."""
    if not is_number(value):
        return None
    if not is_number(n) or n < 1 or not 0 <= value <= 1:
        return Estimate(float(value))
    return replace(share(np.arange(int(n)) < round(value * n)), value=float(value))


def of_estimate(estimate: Estimate | None, how: str) -> Cell:
    return MISSING if estimate is None else Cell(with_interval(estimate), how, estimate.value)


def of_number(value: Any, form: str, how: str) -> Cell:
    """form: a format such as "{:.1f} s"."""
    return Cell(form.format(value), how, float(value)) if is_number(value) else MISSING


def of_text(value: Any) -> Cell:
    return MISSING if value in (None, "", [], {}) else Cell(str(value))


def of_seconds(value: Any, how: str) -> Cell:
    digits = 0 if not is_number(value) or value >= 100 else 1 if value >= 10 else 2
    return of_number(value, f"{{:,.{digits}f}} s", how)


def of_bytes(value: Any, how: str) -> Cell:
    """Decimal units, as disks count."""
    if not is_number(value):
        return MISSING
    for size, unit in ((1e9, "GB"), (1e6, "MB")):
        if value >= size:
            return Cell(f"{value / size:.1f} {unit}", how, float(value))
    return Cell(f"{value / 1e3:.0f} kB", how, float(value))


def is_number(value: Any) -> bool:
    """A finite one; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and bool(np.isfinite(value))


def dig(tree: Any, *path: str) -> Any:
    """What lies at a path of a card, None where the path ends early: cards of other versions lack parts."""
    for part in path:
        if not isinstance(tree, Mapping) or part not in tree:
            return None
        tree = tree[part]
    return tree


def day(date: Any) -> Cell:
    """ "2026-11-21" of a time stamp, which it is sorted by."""
    return Cell(str(date)[:10], made(date=date), str(date)) if date else MISSING
