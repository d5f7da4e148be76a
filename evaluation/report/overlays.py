"""Curves of all entries laid over each other on shared axes, one panel for each quantity."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evaluation.report.charts import Axis, axis_of, path_of
from evaluation.report.reading import Member

WIDTH, HEIGHT = 360, 220
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 10, 34  # margins
MOST_POINTS = 120  # of a line
DECADES = 30  # a positive quantity whose values differ by more than this factor has a logarithmic axis
MARKED = 24  # most points of a line that have a dot each


@dataclass(frozen=True)
class Quantity:
    """A column of metrics.csv. shown: in the panels that are ticked when the page is opened."""

    key: str
    title: str
    scale: float = 1
    shown: bool = True
    note: str = ""


QUANTITIES = (
    Quantity("knn", "quick k-NN accuracy, %", scale=100),
    Quantity("probe", "online probe accuracy, %", scale=100),
    Quantity("loss", "loss", shown=False, note="Losses of different methods cannot be compared."),
    Quantity("rankme", "RankMe of the projections", shown=False),
)


@dataclass(frozen=True)
class Curve:
    """One entry's line. number: of the entry, from 1. dots: (x, y) where there are few."""

    number: int
    name: str
    path: str
    dots: list[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """width, height: of the drawing."""

    quantity: Quantity
    alt: str
    x: Axis
    y: Axis
    curves: list[Curve]
    width: int = WIDTH
    height: int = HEIGHT


def panels(members: Sequence[Member]) -> list[Panel]:
    """Make a panel for each quantity that an entry has recorded; at least one of them is shown."""
    made = [panel for quantity in QUANTITIES if (panel := _panel(quantity, members))]
    if made and not any(panel.quantity.shown for panel in made):
        made[0] = replace(made[0], quantity=replace(made[0].quantity, shown=True))
    return made


def _panel(quantity: Quantity, members: Sequence[Member]) -> Panel | None:
    series = {number: _points(member.curves, quantity) for number, member in enumerate(members, 1)}
    series = {number: points for number, points in series.items() if points}
    if not series:
        return None
    x = axis_of([0, *(epoch for points in series.values() for epoch, _ in points)], LEFT, WIDTH - RIGHT, whole=True)
    values = [value for points in series.values() for _, value in points]
    logarithmic = min(values) > 0 and max(values) > DECADES * min(values)
    y = _logarithmic(values) if logarithmic else axis_of(values, HEIGHT - BOTTOM, TOP)
    curves = []
    for number, points in series.items():
        drawn = [(x(epoch), y(math.log10(value) if logarithmic else value)) for epoch, value in points]
        name = f"{members[number - 1].name}: {points[-1][1]:.4g} at the end"
        curves.append(Curve(number, name, path_of(drawn), drawn if len(drawn) <= MARKED else []))
    alt = f"{quantity.title} over the epochs of {len(series)} entries, between {min(values):.3g} and {max(values):.3g}."
    return Panel(quantity, alt, x, y, curves)


def _points(rows: Sequence[Mapping[str, float]], quantity: Quantity) -> list[tuple[float, float]]:
    """Return (epoch, value), the epoch with its fraction, of at most 120 rows at even distances."""
    ends = {row["epoch"]: row["step"] for row in rows if "epoch" in row and "step" in row}
    if not ends:
        return []
    each = max(ends.values()) / max(ends) or 1  # steps of an epoch
    found = [
        (row["step"] / each, quantity.scale * row[quantity.key])
        for row in rows
        if quantity.key in row and "step" in row and math.isfinite(row[quantity.key])
    ]
    if len(found) <= MOST_POINTS:
        return found
    return [found[round(k * (len(found) - 1) / (MOST_POINTS - 1))] for k in range(MOST_POINTS)]


def _logarithmic(values: Sequence[float]) -> Axis:
    """Make a logarithmic axis; it takes logarithms to base 10, its labels are the values."""
    low, high = math.log10(min(values)), math.log10(max(values))
    axis = Axis(low, high, HEIGHT - BOTTOM, TOP, [])
    marks = [digit * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for digit in (1, 3)]
    inside = [mark for mark in marks if low <= math.log10(mark) <= high]
    return replace(axis, ticks=[(axis(math.log10(mark)), f"{mark:g}") for mark in inside])
