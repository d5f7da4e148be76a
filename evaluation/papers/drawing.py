"""Pictures of the experiments, in the common style: rows of columns, points, maps, lines over an option's values."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.papers.experiment import Cell
from sslkit.files.writing import write_whole
from sslkit.numerics import figures

if TYPE_CHECKING:
    import numpy as np
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
    measured: Sequence[float],
    measure: str,
    path: Path,
    title: str,
    of: str = "tasks",
) -> None:
    """A panel for each score: a point for each task (or of what else), its score and what was measured."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.9 * len(scores), 3.2), layout="constrained")
    axes = figure.subplots(1, len(scores), sharey=True, squeeze=False)[0]
    for axis, (name, values) in zip(axes, scores.items(), strict=True):
        axis.plot(values, [100 * one for one in measured], "o", ms=3, alpha=0.7, color=figures.FIRST)
        figures.panel(axis, name)
        axis.grid(color=figures.GUIDE, lw=0.6)
    axes[0].set_ylabel(f"{measure}, %", fontsize=figures.SMALL)
    figures.titled(figure, title)
    figures.noted(figure, [f"a point for each of {len(measured)} {of}; {figures.better()}"])
    save(figure, path)


def maps_of_rows(
    maps: Mapping[str, tuple["np.ndarray", "np.ndarray"]], classes: Sequence[str], path: Path, title: str
) -> None:
    """A panel for each row: the map (n, 2) of its features, the points (n,) by class, with one legend."""
    from matplotlib.figure import Figure

    across = len(maps) if len(maps) <= 3 else math.ceil(math.sqrt(len(maps)))
    down = -(-len(maps) // across)
    figure = Figure(figsize=(2.7 * across + 2.0, 2.8 * down + 0.9), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).flat
    for axis, (name, (flat, y)) in zip(axes, maps.items(), strict=False):
        figures.scatter(axis, flat, y, classes, legend=False)
        axis.set_title(name, fontsize=figures.PANEL, loc="left", color=figures.INK, parse_math=False)
    figures.beside(figure, *axes[0].get_legend_handles_labels())
    for axis in list(axes)[len(maps) :]:
        axis.axis("off")
    figures.titled(figure, title)
    figures.noted(figure, ["t-SNE of one seed; distances and sizes in a map mean nothing"])
    save(figure, path)


def lines_by_option(rows: Mapping[str, Mapping[str, Cell]], path: Path, title: str) -> None:
    """A panel for each OPTION of rows called OPTION=VALUE: a line for each column, with its intervals."""
    from matplotlib.figure import Figure

    options: dict[str, dict[float, Mapping[str, Cell]]] = {}
    for name, cells in rows.items():
        option, _, value = name.partition("=")
        options.setdefault(option, {})[float(value)] = cells
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    figure = Figure(figsize=(2.6 * len(options) + 1.0, 1.7 * len(columns) + 1.2), layout="constrained")
    axes = figure.subplots(len(columns), len(options), sharey="row", sharex="col", squeeze=False)
    for across, (option, values) in enumerate(options.items()):
        for down, column in enumerate(columns):
            _line(axes[down, across], values, column)
            axes[0, across].set_title(option, fontsize=figures.PANEL, loc="left", color=figures.INK)
            axes[down, 0].set_ylabel(column, fontsize=figures.SMALL)
    figures.titled(figure, title)
    figures.noted(figure, ["measured here, with 95 % intervals where there are several seeds"])
    save(figure, path)


def _line(axis: "Axes", values: Mapping[float, Mapping[str, Cell]], column: str) -> None:
    """Draw a column over the values, at equal distances."""
    measured = [values[value][column].measured for value in sorted(values)]
    points = [(place, one) for place, one in enumerate(measured) if one is not None]
    for place, one in points:
        if one.interval is not None:
            axis.plot([place, place], one.interval, color=figures.FIRST, lw=1.5)
    axis.plot([place for place, _ in points], [one.value for _, one in points], "o-", color=figures.FIRST, ms=4, lw=1)
    axis.set_xticks(range(len(values)), [f"{value:g}" for value in sorted(values)])
    axis.tick_params(labelsize=figures.SMALL)
    axis.grid(color=figures.GUIDE, lw=0.6)
    axis.spines[["top", "right"]].set_visible(False)
