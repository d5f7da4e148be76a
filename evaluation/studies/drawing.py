"""Pictures of the studies, in the common style: rows of columns, points, maps, lines over an option's values."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evaluation.results.statistics import Estimate
from evaluation.studies.claims import Cell
from sslkit.files.writing import write_whole
from sslkit.numerics import figures

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_panels(rows: Mapping[str, Mapping[str, Cell]], path: Path, title: str) -> None:
    """A panel for each column: the measured numbers with their intervals, the paper's as hollow marks."""
    from matplotlib.figure import Figure

    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    figure = Figure(figsize=(3.2 * len(columns) + 1.6, 0.28 * len(rows) + 1.6), layout="constrained")
    axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axis, column in zip(axes, columns, strict=True):
        _panel(axis, column, [cells.get(column) for cells in rows.values()])
    axes[0].set_yticks(range(len(rows)), list(rows), fontsize=figures.SMALL)
    axes[0].invert_yaxis()
    figures.write_title(figure, title)
    published = any(cell.published is not None for cells in rows.values() for cell in cells.values())
    here = "measured here, with its 95 % interval"
    figures.write_notes(figure, [f"filled: {here}; hollow: the paper's, on its own data" if published else here])
    save(figure, path)


def _panel(axis: "Axes", column: str, cells: list[Cell | None]) -> None:
    for row, cell in enumerate(cells):
        if cell is None:
            continue
        if cell.measured is not None:
            scale = 100 if cell.measured.unit == "fraction" else 1
            value = scale * cell.measured.value
            if cell.measured.interval is not None:
                axis.plot([scale * end for end in cell.measured.interval], [row, row], color=figures.FIRST, lw=1.5)
            axis.plot(value, row, "o", color=figures.FIRST, ms=5)
        if cell.published is not None:
            axis.plot(cell.published, row, "o", mfc="none", color=figures.SECOND, ms=6)
    shares = any(cell and cell.measured and cell.measured.unit == "fraction" for cell in cells)
    figures.panel(axis, f"{column}, %" if shares else column)
    axis.grid(axis="x", color=figures.GUIDE, lw=0.6)


def save(figure: "Figure", path: Path) -> None:
    with write_whole(path) as partial:
        figure.savefig(partial, format="png", dpi=130, facecolor=figures.PAPER)


def draw_scatter(
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
            axis.plot(values, [100 * fraction for fraction in fractions], "o", ms=3, alpha=0.7, color=figures.FIRST)
            figures.panel(axis, name)
            axis.grid(color=figures.GUIDE, lw=0.6)
        row[0].set_ylabel(f"{measure}, %", fontsize=figures.SMALL)
    figures.write_title(figure, title)
    figures.write_notes(figure, [f"a point for each of {len(fractions)} {points}; {figures.better()}"])
    save(figure, path)


def draw_class_maps(
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
    figures.write_title(figure, title)
    figures.write_notes(figure, ["t-SNE of one seed; distances and sizes in a map mean nothing"])
    save(figure, path)


def draw_sweeps(rows: Mapping[str, Mapping[str, Cell]], path: Path, title: str) -> None:
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
    figures.write_title(figure, title)
    figures.write_notes(figure, ["measured here, with 95 % intervals where there are several seeds"])
    save(figure, path)


def _line(axis: "Axes", values: Mapping[float, Mapping[str, Cell]], column: str) -> None:
    """Draw a column over the values, at equal distances."""
    measured = [values[value][column].measured for value in sorted(values)]
    points = [(at, estimate) for at, estimate in enumerate(measured) if estimate is not None]
    for at, estimate in points:
        if estimate.interval is not None:
            axis.plot([at, at], estimate.interval, color=figures.FIRST, lw=1.5)
    values_at = [at for at, _ in points], [estimate.value for _, estimate in points]
    axis.plot(*values_at, "o-", color=figures.FIRST, ms=4, lw=1)
    axis.set_xticks(range(len(values)), [f"{value:g}" for value in sorted(values)])
    axis.tick_params(labelsize=figures.SMALL)
    axis.grid(color=figures.GUIDE, lw=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def draw_ranks(tasks: Mapping[str, Mapping[str, Mapping[str, float]]], path: Path, title: str) -> None:
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
            axis.plot(
                [rank] * len(others), [ranks[model] for _, ranks in others], color=figures.GUIDE, lw=1.2, zorder=1
            )
        for number, (name, ranks) in enumerate(others):
            last = number == len(others) - 1
            colour = (figures.SECOND, figures.FIRST)[last]
            axis.plot(
                [*truth.values()], [ranks[model] for model in truth], "o", ms=5, color=colour,
                mfc=colour if last else "none", label=name,
            )  # fmt: skip
        figures.panel(axis, task)
        axis.locator_params(integer=True)
        axis.invert_xaxis(), axis.invert_yaxis()
        axis.set_xlabel(f"rank by {base}", fontsize=figures.SMALL)
    axes[0].set_ylabel("rank by the metric", fontsize=figures.SMALL)
    axes[-1].legend(fontsize=figures.SMALL, frameon=False)
    figures.write_title(figure, title)
    figures.write_notes(figure, ["a mark for each model; on the diagonal the metric's rank is the rank by fine-tuning"])
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
    """A line for each name over the places, with its 95 % intervals. scale: factor of the values.

    Intervals of two numbers, 12.7 standard errors wide, would hide the lines: they are left out, which a note says.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axis = figure.subplots()
    for number, (name, values) in enumerate(lines.items()):
        style = figures.line_style(number)
        axis.plot(places, [scale * estimate.value for estimate in values], label=name, ms=4, **style)
        for at, estimate in zip(places, values, strict=True):
            if estimate.interval is not None and estimate.n > 2:
                axis.plot([at, at], [scale * end for end in estimate.interval], color=style["color"], lw=0.8, alpha=0.5)
    axis.set_xlabel(words, fontsize=figures.SMALL)
    figures.panel(axis, measure)
    axis.grid(color=figures.GUIDE, lw=0.6)
    figures.beside(figure, *axis.get_legend_handles_labels())
    figures.write_title(figure, title)
    most = max(estimate.n for values in lines.values() for estimate in values)
    few = f"means of {most} seeds; their intervals are in the table"
    figures.write_notes(figure, ["vertical lines: 95 % intervals" if most > 2 else few])
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
    figures.write_title(figure, title)
    figures.write_notes(figure, [note])
    save(figure, path)
