"""Pictures of the experiments, in the common style: rows of columns, and lines over an option's values."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evaluation.papers.experiment import Cell
from evaluation.results.statistics import Estimate
from sslkit.files.writing import write_whole
from sslkit.numerics import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def rows_of_columns(rows: Mapping[str, Mapping[str, Cell]], path: Path, title: str) -> None:
    """A panel for each column: the measured numbers with their intervals, the paper's as hollow marks."""
    from matplotlib.figure import Figure

    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    figure = Figure(figsize=(3.2 * len(columns) + 1.6, 0.28 * len(rows) + 1.6), layout="constrained")
    axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axis, column in zip(axes, columns, strict=True):
        _panel(axis, column, [cells.get(column) for cells in rows.values()])
    axes[0].set_yticks(range(len(rows)), list(rows), fontsize=figures.SMALL)
    axes[0].invert_yaxis()
    figures.titled(figure, title)
    figures.noted(figure, ["filled: measured here, with its 95 % interval; hollow: the paper's, on its own data"])
    save(figure, path)


def _panel(axis: "Axes", column: str, cells: list[Cell | None]) -> None:
    for place, cell in enumerate(cells):
        if cell is None:
            continue
        if cell.measured is not None:
            scale = 100 if cell.measured.unit == "fraction" else 1
            value = scale * cell.measured.value
            if cell.measured.interval is not None:
                axis.plot([scale * end for end in cell.measured.interval], [place, place], color=figures.FIRST, lw=1.5)
            axis.plot(value, place, "o", color=figures.FIRST, ms=5)
        if cell.published is not None:
            axis.plot(cell.published, place, "o", mfc="none", color=figures.SECOND, ms=6)
    shares = any(cell and cell.measured and cell.measured.unit == "fraction" for cell in cells)
    figures.panel(axis, f"{column}, %" if shares else column)
    axis.grid(axis="x", color=figures.GUIDE, lw=0.6)


def save(figure: "Figure", path: Path) -> None:
    with write_whole(path) as partial:
        figure.savefig(partial, format="png", dpi=130, facecolor=figures.PAPER)


def scattered(
    scores: Mapping[str, Sequence[float]],
    measured: Mapping[str, Sequence[float]],
    path: Path,
    title: str,
    points: str = "tasks",
) -> None:
    """A panel for each score and each measure, a fraction: a point for each task, or other `points`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.9 * len(scores), 2.7 * len(measured) + 0.5), layout="constrained")
    axes = figure.subplots(len(measured), len(scores), sharey="row", squeeze=False)
    for row, (measure, fractions) in zip(axes, measured.items(), strict=True):
        for axis, (name, values) in zip(row, scores.items(), strict=True):
            axis.plot(values, [100 * one for one in fractions], "o", ms=3, alpha=0.7, color=figures.FIRST)
            figures.panel(axis, name)
            axis.grid(color=figures.GUIDE, lw=0.6)
        row[0].set_ylabel(f"{measure}, %", fontsize=figures.SMALL)
    figures.titled(figure, title)
    figures.noted(figure, [f"a point for each of {len(fractions)} {points}; {figures.better()}"])
    save(figure, path)


def compared_ranks(tasks: Mapping[str, Mapping[str, Mapping[str, float]]], path: Path, title: str) -> None:
    """A panel for each task: the models' ranks by the first of its columns against those by the others.

    tasks: {task: {column: {model: rank}}}. The marks of a model are joined from the first metric to the last, whose
    marks are filled; on the diagonal both ranks are equal.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6 * len(tasks) + 1.2, 4.2), layout="constrained")
    axes = figure.subplots(1, len(tasks), squeeze=False)[0]
    for axis, (task, columns) in zip(axes, tasks.items(), strict=True):
        (base, truth), *others = columns.items()
        most = max(truth.values())
        axis.plot([1, most], [1, most], color=figures.REFERENCE, lw=0.8)
        for model, rank in truth.items():
            axis.plot([rank] * len(others), [own[model] for _, own in others], color=figures.GUIDE, lw=1.2, zorder=1)
        for place, (name, own) in enumerate(others):
            last = place == len(others) - 1
            colour = (figures.SECOND, figures.FIRST)[last]
            axis.plot(
                [*truth.values()], [own[model] for model in truth], "o", ms=5, color=colour,
                mfc=colour if last else "none", label=name,
            )  # fmt: skip
        figures.panel(axis, task)
        axis.locator_params(integer=True)
        axis.invert_xaxis(), axis.invert_yaxis()
        axis.set_xlabel(f"rank by {base}", fontsize=figures.SMALL)
    axes[0].set_ylabel("rank by the metric", fontsize=figures.SMALL)
    axes[-1].legend(fontsize=figures.SMALL, frameon=False)
    figures.titled(figure, title)
    figures.noted(figure, ["a mark for each model; on the diagonal the metric's rank is the rank by fine-tuning"])
    save(figure, path)


def curves(
    lines: Mapping[str, Sequence[Estimate]],
    places: Sequence[float],
    words: str,
    path: Path,
    title: str,
    measure: str = "accuracy, %",
    scale: float = 100,
) -> None:
    """A line for each name over the places, with its 95 % intervals. scale: factor of the values."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axis = figure.subplots()
    for place, (name, values) in enumerate(lines.items()):
        style = figures.line_style(place)
        axis.plot(places, [scale * one.value for one in values], label=name, ms=4, **style)
        for at, one in zip(places, values, strict=True):
            if one.interval is not None:
                axis.plot([at, at], [scale * end for end in one.interval], color=style["color"], lw=0.8, alpha=0.5)
    axis.set_xlabel(words, fontsize=figures.SMALL)
    figures.panel(axis, measure)
    axis.grid(color=figures.GUIDE, lw=0.6)
    figures.beside(figure, *axis.get_legend_handles_labels())
    figures.titled(figure, title)
    figures.noted(figure, ["vertical lines: 95 % intervals"])
    save(figure, path)


def maps(
    flat: Mapping[str, Mapping[str, np.ndarray]],
    shares: Mapping[str, Mapping[str, float]],
    note: str,
    path: Path,
    title: str,
) -> None:
    """A row of maps for each model, a map for each stage. flat: (n, 2) by stage, and "y" (n,). shares: by stage."""
    from matplotlib.figure import Figure

    stages = [name for name in next(iter(flat.values())) if name != "y"]
    size = (2.9 * len(stages) + 0.6, 3.1 * len(flat) + 0.7)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(flat), len(stages), squeeze=False)
    for row, (model, views) in zip(axes, flat.items(), strict=True):
        classes = list(map(str, range(int(views["y"].max()) + 1)))
        for axis, stage in zip(row, stages, strict=True):
            figures.scatter(axis, views[stage], views["y"], classes, legend=False)
            axis.set_title(f"{model}, {stage}\nshare {100 * shares[model][stage]:.0f} %", fontsize=figures.SMALL)
    figures.titled(figure, title)
    figures.noted(figure, [note])
    save(figure, path)
