"""Geometry of the charts, drawn by the template as SVG in the page's own colours, light or dark.

By hand: matplotlib's SVG has fixed colours and no words at its points, plotly adds megabytes to a page without network.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from evaluation.ranking.ranking import Ranking

WIDTH, HEIGHT = 300, 180  # pixels: a few charts beside each other on a page
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 10, 30  # margins
ACROSS = (2.0, 98.0)  # per cent of the width, of charts as wide as the page
DOTS = 24  # most points of a line that have a dot each


@dataclass(frozen=True)
class Axis:
    """A linear scale from data to pixels. ticks: (pixel, label)."""

    low: float
    high: float
    start: float
    end: float
    ticks: list[tuple[float, str]]

    def __call__(self, value: float) -> float:
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)


@dataclass(frozen=True)
class Line:
    """path: of an SVG path. dots: (x, y, text), none on a line of many points."""

    name: str
    path: str
    dots: list[tuple[float, float, str]]


@dataclass(frozen=True)
class LineChart:
    title: str
    alt: str
    x: Axis
    y: Axis
    lines: list[Line]


@dataclass(frozen=True)
class Dot:
    """A row of a chart. x, low, high, base: in per cent of the width, None where there is none; base: before training.

    name: without the end that all share; says: everything in words.
    """

    name: str
    text: str
    x: float
    low: float | None
    high: float | None
    says: str
    tied: bool = False
    base: float | None = None


@dataclass(frozen=True)
class DotChart:
    """A row for each model, as wide as the page. shared: the end that the names lack, "" if they end differently."""

    title: str
    alt: str
    x: Axis
    dots: list[Dot]
    shared: str = ""

    @property
    def has_bases(self) -> bool:
        return any(dot.base is not None for dot in self.dots)


@dataclass(frozen=True)
class Point:
    """label: the model's rank by truth; label_y: above or below, to reduce overlaps of neighbours."""

    x: float
    y: float
    low: float
    high: float
    label: str
    label_y: float
    says: str


@dataclass(frozen=True)
class ScatterChart:
    title: str
    alt: str
    x: Axis
    y: Axis
    points: list[Point]


def curves(rows: Sequence[dict[str, float]]) -> list[LineChart]:
    """Make charts of a run's metrics: loss terms over the steps, quick k-NN and probe, rank of z."""
    if not rows:
        return []
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if "step" not in columns:
        return []
    terms = columns[columns.index("step") + 1 : columns.index("loss") + 1] if "loss" in columns else []
    charts = [_line_chart(name, {name: name}, rows) for name in terms[-1:] + terms[:-1]]  # their sum, the loss, first
    charts.append(
        _line_chart("accuracy during training, %", {"knn": "quick k-NN", "probe": "online probe"}, rows, scale=100)
    )
    charts.append(_line_chart("rank of z", {"rankme": "rank of z"}, rows))
    return [chart for chart in charts if chart is not None]


def dots(ranking: Ranking, k: int) -> DotChart | None:
    """Make a chart of models by rank of metric k: dots of scores, whiskers of 95 % over images; None without a score.

    Scores have no natural zero, so that the lengths of bars would mean nothing.
    """
    order = ranking.order_by(k)
    if not len(order):
        return None
    ends = ranking.ends(order, k)
    scale = axis_of([*ends.ravel(), *ranking.scores[order, k]], *ACROSS)
    names, shared = distinct([ranking.models[m] for m in order])
    digits = score_decimals(ranking, k)
    drawn = [
        _dot(ranking, k, int(m), name, scale, position, digits)
        for position, (m, name) in enumerate(zip(order, names, strict=True))
    ]
    metric = ranking.metrics[k]
    alt = f"Scores of {len(order)} models by {metric} on {ranking.data}, best first. First: {ranking.models[order[0]]}."
    return DotChart(metric, f"{alt} The table has the numbers.", scale, drawn, shared)


def _dot(ranking: Ranking, k: int, m: int, name: str, scale: Axis, position: int, digits: int) -> Dot:
    score, (low, high) = float(ranking.scores[m, k]), ranking.intervals[m, k]
    has_interval = not np.isnan([low, high]).any()
    text, tied = f"{score:.{digits}f}", bool(ranking.tied[m, k]) and position > 0
    interval = f", 95 % {low:.4g} to {high:.4g} over images" if has_interval else ""
    says = f"{ranking.models[m]}: {text}{interval}{', tied with the best' if tied else ''}"
    span = (scale(low), scale(high)) if has_interval else (None, None)
    return Dot(name, text, scale(score), *span, says, tied)


def score_decimals(ranking: Ranking, k: int) -> int:
    """Return the decimals of a metric's scores: two digits of the smallest interval, else four of the largest score."""
    low, high = ranking.intervals[:, k].T
    halves = (high - low)[np.isfinite(high - low) & (high > low)] / 2
    scores = np.abs(ranking.scores[:, k][np.isfinite(ranking.scores[:, k])])
    size = halves.min() if len(halves) else scores.max(initial=0) / 100
    return int(np.clip(1 - math.floor(math.log10(size)), 0, 6)) if size > 0 else 0


def distinct(names: Sequence[str]) -> tuple[list[str], str]:
    """Return names without the end that all of them share, and that end; it begins at a "-"."""
    parts = [name.split("-") for name in names]
    count = 0
    while (
        len(names) > 1
        and all(len(words) > count + 1 for words in parts)
        and len({words[-1 - count] for words in parts}) == 1
    ):
        count += 1
    if not count:
        return list(names), ""
    return ["-".join(words[:-count]) for words in parts], "-" + "-".join(parts[0][-count:])


def scatter(ranking: Ranking, k: int) -> ScatterChart | None:
    """Plot metric k against the accuracy after fine-tuning; None without truth, or for fewer than two models."""
    if ranking.truth is None:
        return None
    scored = np.flatnonzero(~np.isnan(ranking.scores[:, k]))
    if len(scored) < 2:
        return None
    ends, truth = ranking.ends(scored, k), ranking.truth
    x = axis_of([*ends.ravel(), *ranking.scores[scored, k]], LEFT, WIDTH - RIGHT)
    y = axis_of(truth[scored], HEIGHT - BOTTOM, TOP)
    places = truth_places(ranking)
    points = []
    for m, (low, high) in zip(scored, ends, strict=True):
        score = ranking.scores[m, k]
        says = f"{places[m]}. {ranking.models[m]}: score {score:.4g}, accuracy after fine-tuning {truth[m]:.4g}"
        label_y = y(truth[m]) + (13 if places[m] % 2 == 0 else -5)
        points.append(Point(x(score), y(truth[m]), x(low), x(high), str(places[m]), label_y, says))
    alt = f"Score by {ranking.metrics[k]} across, accuracy after fine-tuning on {ranking.data} upwards, "
    return ScatterChart(ranking.metrics[k], f"{alt}{len(scored)} models.", x, y, points)


def truth_places(ranking: Ranking) -> list[int]:
    """Return the models' ranks (M,) by accuracy after fine-tuning, from 1."""
    return [1 + int((ranking.truth > value).sum()) for value in ranking.truth]


def _line_chart(
    title: str, names: dict[str, str], rows: Sequence[dict[str, float]], scale: float = 1
) -> LineChart | None:
    """Make a line chart; None if no row has a value. names: {column: label of the line}. scale: 100 for per cent."""
    series = {}
    for column, label in names.items():
        points = [(row["step"], scale * row[column]) for row in rows if column in row and "step" in row]
        if points := [point for point in points if np.isfinite(point).all()]:
            series[label] = points
    if not series:
        return None
    steps, values = zip(*(point for points in series.values() for point in points), strict=True)
    x, y = axis_of([0, *steps], LEFT, WIDTH - RIGHT), axis_of(values, HEIGHT - BOTTOM, TOP)
    lines, changes = [], []
    for label, points in series.items():
        marks = [(x(step), y(value), f"{label} {value:.4g} at step {step:g}") for step, value in points]
        lines.append(Line(label, path_of([mark[:2] for mark in marks]), marks if len(marks) <= DOTS else []))
        (start, first), (end, last) = points[0], points[-1]
        changes.append(f"{label} from {first:.3g} at step {start:g} to {last:.3g} at step {end:g}")
    return LineChart(title, f"{title} over the steps: {'; '.join(changes)}.", x, y, lines)


def path_of(points: Sequence[tuple[float, float]]) -> str:
    """Return the SVG path through points (x, y)."""
    return "M" + " L".join(f"{x:g} {y:g}" for x, y in points)


def axis_of(values: Sequence[float], start: float, end: float, *, most: int = 4, whole: bool = False) -> Axis:
    """Make an axis that covers all values, from tick to tick. most: intervals. whole: the ticks are integers."""
    from matplotlib.ticker import MaxNLocator

    low, high = float(min(values)), float(max(values))
    if low == high:
        low, high = low - (abs(low) or 1) / 10, high + (abs(high) or 1) / 10
    marks = MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10], integer=whole).tick_values(low, high)
    axis = Axis(min(low, float(marks[0])), max(high, float(marks[-1])), start, end, [])
    return replace(axis, ticks=[(axis(float(mark)), f"{0.0 if abs(mark) < 1e-12 else mark:.6g}") for mark in marks])
