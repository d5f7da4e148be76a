"""Bars of results with their intervals: all accuracies on one axis, by value within their data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evaluation.results import unseen
from evaluation.results.names import in_words, short, wrap
from evaluation.results.result import Result
from evaluation.results.tables import DOWN, direction, with_interval
from sslkit.backbones.words import is_null
from sslkit.errors import UserError
from sslkit.numerics.figures import (
    FIRST,
    INK,
    OTHERS,
    REFERENCE,
    SMALL,
    better,
    panel,
    save_figure,
    write_notes,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, LINE = 8.5, 0.27  # inches of the picture, of a bar
FURTHER = 0.6  # of a bar's height: a further line of its name
AROUND = 3  # bars' heights of the title and the axis of a panel
NUMBERS = 0.55  # share of the longest bar that is free beside it for the numbers


@dataclass(frozen=True)
class Row:
    """A line of a panel: a bar, or the heading of the bars below."""

    name: str
    result: Result | None = None

    @property
    def height(self) -> float:
        """In bars."""
        return 1 + FURTHER * self.name.count("\n")


def plot_results(results: Sequence[Result], path: str | Path, *, title: str = "") -> None:
    """Draw bars with 95 % intervals as a PNG: a panel for all fractions, in percent, and one for each other metric.

    Below the name of a data set stand the protocols of one model, or below that of a protocol the models; each by
    value. A number without an interval has no whisker; one chosen on test data is pale and labelled, and that of
    random weights gray.
    """
    from matplotlib.figure import Figure

    if not results:
        raise UserError("there is no result to draw")
    panels = {name: _rows(some) for name, some in _panels(results).items()}
    heights = [sum(row.height for row in rows) + AROUND for rows in panels.values()]
    figure = Figure(figsize=(WIDTH, LINE * sum(heights) + 0.8), layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (name, rows) in zip(axes, panels.items(), strict=True):
        _draw(axis, name, rows)
    write_title(figure, title)
    write_notes(figure, _notes(results))
    save_figure(figure, Path(path))


def _panels(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results by the title of their panel, fractions first."""
    panels: dict[str, list[Result]] = {}
    accuracies = all("accuracy" in _words(result) for result in results if result.unit == "fraction")
    fractions = "accuracy" if accuracies else "accuracy and other shares"
    for result in sorted(results, key=lambda one: one.unit != "fraction"):
        title = fractions if result.unit == "fraction" else _words(result)
        panels.setdefault(title, []).append(result)
    return panels


def _rows(results: Sequence[Result]) -> list[Row]:
    """The bars under their headings, those of a heading by value."""
    several = len({result.model for result in results}) > 1
    if not several and results[0].unit != "fraction":
        return _bars("", results, [result.data or _words(result) for result in results])
    rows = []
    for heading, some in _group(results).items():
        rows += _bars(heading, some, [wrap(result.model) if several else _words(result) for result in some])
    return rows


def _group(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results of one model by data set; those of several also by protocol, and by recipe if each has several."""
    several = len({result.model for result in results}) > 1
    keys = [(result.model, result.data, result.protocol, result.metric) for result in results]
    groups: dict[str, list[Result]] = {}
    for key, result in zip(keys, results, strict=True):
        words = _words(result) if several and result.unit == "fraction" else ""  # else the panel's title
        recipe = short(result.recipe) if several and keys.count(key) > 1 else ""
        groups.setdefault(": ".join(filter(None, (result.data, words, recipe))), []).append(result)
    return groups


def _bars(heading: str, results: Sequence[Result], names: Sequence[str]) -> list[Row]:
    """The heading and the bars by value, with the recipe beside the names that are the same or of several models."""
    recipes, models = ({getattr(result, field) for result in results} for field in ("recipe", "model"))
    unclear = len(recipes) > 1 and (len(models) > 1 or len(set(names)) < len(names))
    rows = [
        Row(
            f"{name}\n{short(result.recipe)}" if unclear and (len(models) > 1 or names.count(name) > 1) else name,
            result,
        )
        for name, result in zip(names, results, strict=True)
    ]
    rows.sort(key=lambda row: -row.result.value)
    return [Row(heading), *rows] if heading else rows


def _words(result: Result) -> str:
    return in_words(result.protocol, result.metric)


def _draw(axis: "Axes", title: str, rows: Sequence[Row]) -> None:
    first = next(row.result for row in rows if row.result)
    unit = first.unit
    scale = 100 if unit == "fraction" else 1
    height, places = 0.0, []
    for row in rows:
        places.append(height + (row.height - 1) / 2)
        height += row.height
        if row.result:
            _bar(axis, places[-1], row.result, scale)
        else:
            _beside(axis, row.name, 0, places[-1], fontweight="bold")
    names = [row.name if row.result else "" for row in rows]
    axis.set_yticks(places, names, fontsize=SMALL, parse_math=False)
    panel(axis, title)
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(height - 0.4, -0.6)
    meaning = f"; {better(direction(first) != DOWN)}" if direction(first) or scale == 100 else ""
    axis.set_xlabel(f"{'%' if scale == 100 else unit}{meaning}", fontsize=SMALL, loc="left")
    if scale == 100:
        axis.set(xlim=(0, 100 * (1 + NUMBERS)), xticks=range(0, 101, 20))
        axis.spines["bottom"].set_bounds(0, 100)  # the rest is for the numbers
    else:
        low, high = axis.dataLim.intervalx
        room = NUMBERS * (max(high, 0) - min(low, 0))
        axis.set_xlim(min(low - room if low < 0 else 0, 0), max(high, 0) + room)


def _bar(axis: "Axes", place: float, result: Result, scale: float) -> None:
    low, high = result.interval or (result.value, result.value)
    whisker = scale * np.array([[max(result.value - low, 0)], [max(high - result.value, 0)]])
    colour = OTHERS if result.leaky else REFERENCE if is_null(result.model) else FIRST
    axis.barh(place, scale * result.value, color=colour, height=0.66)
    if result.interval:
        axis.errorbar(scale * result.value, place, xerr=whisker, color=INK, capsize=3, lw=1.2)
    note = f"{with_interval(result.estimate)}{'  leaky' if result.leaky else ''}"
    _beside(axis, note, scale * max(high, 0), place)


def _beside(axis: "Axes", text: str, x: float, y: float, **style: str) -> None:
    """Write a text at the right of a point."""
    position = {"xy": (x, y), "xytext": (7, 0), "textcoords": "offset points", "va": "center"}
    axis.annotate(text, fontsize=SMALL, color=INK, parse_math=False, **position, **style)


def _notes(results: Sequence[Result]) -> list[str]:
    kinds = list(
        dict.fromkeys(result.kind.replace("wilson", "Wilson") for result in results if result.interval and result.kind)
    )
    notes = [f"Lines: 95 % intervals ({'; '.join(kinds)})." if kinds else ""]
    notes += ["Gray: random weights, or raw pixels."] if any(is_null(result.model) for result in results) else []
    notes += ["Leaky: test images were chosen by, or trained on."] if any(result.leaky for result in results) else []
    notes += [f"{note}." for note in dict.fromkeys(map(unseen.note_of, results)) if note]
    return [" ".join(filter(None, notes))]
