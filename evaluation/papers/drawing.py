"""Pictures of the experiments, in the common style: rows of columns, and lines over an option's values."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.papers.experiment import Cell
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
    scores: Mapping[str, Sequence[float]], measured: Sequence[float], measure: str, path: Path, title: str
) -> None:
    """A panel for each score: a point for each task, its score and what was measured."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.9 * len(scores), 3.2), layout="constrained")
    axes = figure.subplots(1, len(scores), sharey=True, squeeze=False)[0]
    for axis, (name, values) in zip(axes, scores.items(), strict=True):
        axis.plot(values, [100 * one for one in measured], "o", ms=3, alpha=0.7, color=figures.FIRST)
        figures.panel(axis, name)
        axis.grid(color=figures.GUIDE, lw=0.6)
    axes[0].set_ylabel(f"{measure}, %", fontsize=figures.SMALL)
    figures.titled(figure, title)
    figures.noted(figure, [f"a point for each of {len(measured)} tasks; {figures.better()}"])
    save(figure, path)
