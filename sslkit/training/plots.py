"""The pictures of a run at its end: its loss terms over time, and the embedding."""

import textwrap
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from sslkit.numerics.figures import reduced, save_figure, scatter, tsne

if TYPE_CHECKING:
    from matplotlib.axes import Axes

matplotlib.use("Agg")

SHARES = "share: gradient norm / the objective's"  # titles of panels
ACCURACIES = {True: "accuracy on held-out images", False: "accuracy on images that were trained on too"}
COLUMNS, WIDTH, HIGH = 3, 3.9, 2.5  # panels side by side; inches of a panel
LINE, OTHER = "#1f5fa8", "#a8480a"
FEW, SMOOTHED = 20, 60  # rows up to which each has a dot, and from which a running median is drawn
MARKS = 12  # most lines that mark epochs
NAMED, OTHERS = 20, -2  # classes with a colour in the embedding; label of the others


def plot_terms(rows: list[dict[str, float]], terms: list[str], path: Path, k: int = 10, held_out: bool = True) -> None:
    """Plot over the steps: the loss, each of its terms, the shares of regularisers in the gradient, and with labels the
    accuracies of k-NN and online probe.

    rows: of metrics.csv. path: in the folder of the run, whose name is the title. held_out: whether the accuracies are
    of images that were not trained on.
    """
    accuracies = ACCURACIES[held_out]
    names = ["loss", *terms] if len(terms) > 1 else terms or ["loss"]
    judged = partial(_draw_accuracies, rows=rows, k=k, title=accuracies)
    panels = {SHARES: partial(_draw_shares, rows=rows), accuracies: judged}
    names = [*names, *([SHARES] if _shares(rows) else []), *([accuracies] if any("knn" in row for row in rows) else [])]
    columns = min(len(names), COLUMNS) if len(names) != COLUMNS + 1 else 2
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(WIDTH * columns, HIGH * lines + 0.6), layout="constrained")
    for place, name in enumerate(names):
        axis = figure.add_subplot(lines, columns, place + 1)
        panels.get(name, partial(_draw_term, rows=rows, name=name))(axis)
        _mark_epochs(axis, rows, label=place + columns >= len(names))
        axis.spines[["top", "right"]].set_visible(False)
    notes = (
        ["Terms are shown as they enter the loss, weights included; the loss is their sum."] if len(terms) > 1 else []
    )
    notes += ["Pale: as recorded, without the extremes; dark: running median."] if _window(rows) > 1 else []
    figure.suptitle(path.parent.name, fontsize=11, parse_math=False)
    figure.supxlabel("\n".join(textwrap.wrap(" ".join(notes), 42 * columns)), fontsize=8, color="#444444")
    save_figure(figure, path)


def _draw_term(axis: "Axes", rows: list[dict[str, float]], name: str) -> None:
    steps, values = np.array([(row["step"], row[name]) for row in rows if name in row]).reshape(-1, 2).T
    window = _window(rows)
    alone = {"marker": "o", "markersize": 3} if len(steps) <= FEW else {}
    axis.plot(steps, values, color=LINE, alpha=0.3 if window > 1 else 1, lw=1 if window > 1 else 1.5, **alone)
    if window > 1:
        middle = np.median(np.lib.stride_tricks.sliding_window_view(values, window), axis=1)
        axis.plot(steps[window // 2 : window // 2 + len(middle)], middle, color=LINE, lw=1.8)
        seen = np.concatenate([middle, np.quantile(values, [0.01, 0.99])])  # a lone peak would flatten the rest
        edge = 0.06 * (np.ptp(seen) or 1)
        axis.set_ylim(seen.min() - edge, seen.max() + edge)
    axis.set_title(name, fontsize=10, loc="left", parse_math=False)


def _shares(rows: list[dict[str, float]]) -> dict[str, str]:
    """The columns of the regularisers' shares, and their regularisers."""
    found = dict.fromkeys(key for row in rows for key in row if key.endswith("/share"))
    return {key: key.rpartition("/")[0] for key in found}


def _draw_shares(axis: "Axes", rows: list[dict[str, float]]) -> None:
    styles = cycle([(LINE, "-"), (OTHER, "--"), (LINE, ":"), (OTHER, "-.")])
    for (key, label), (colour, style) in zip(_shares(rows).items(), styles, strict=False):
        points = [(row["step"], row[key]) for row in rows if row.get(key, 0) > 0]
        if points:
            axis.plot(*zip(*points, strict=True), style, color=colour, label=label, marker="o", markersize=3)
    axis.axhline(1, color="#8a949e", lw=0.8)
    axis.set_yscale("log")
    axis.set_title(SHARES, fontsize=10, loc="left")
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False, fontsize=8)


def _draw_accuracies(axis: "Axes", rows: list[dict[str, float]], k: int, title: str) -> None:
    for key, label, colour, marker in (("knn", f"{k}-NN", LINE, "o"), ("probe", "online probe", OTHER, "s")):
        points = [(row["step"], 100 * row[key]) for row in rows if key in row]
        if points:
            dots = {"marker": marker, "markersize": 4} if len(points) <= FEW else {}
            axis.plot(*zip(*points, strict=True), color=colour, label=label, **dots)
    axis.set_title(title, fontsize=10, loc="left")
    axis.yaxis.set_major_formatter("{x:g} %")
    axis.legend(frameon=False, fontsize=8)


def _mark_epochs(axis: "Axes", rows: list[dict[str, float]], *, label: bool) -> None:
    """Draw a line at the end of every epoch, or of every tenth, ..., so that there are at most twelve."""
    ends = {row["epoch"]: row["step"] for row in rows}
    rounded = (digit * 10**zeros for zeros in count() for digit in (1, 2, 5))
    every = next(number for number in rounded if MARKS * number >= len(ends))
    for epoch, step in ends.items():
        if epoch % every == 0:
            axis.axvline(step, color="#d3d9df", lw=0.8, zorder=0)
    axis.set_xlim(0, 1.02 * max(ends.values(), default=1))
    axis.tick_params(labelsize=8)
    axis.locator_params(axis="x", nbins=5, integer=True)
    if label:
        axis.set_xlabel(f"step; lines mark {'epochs' if every == 1 else f'every {every} epochs'}", fontsize=8)


def _window(rows: list[dict[str, float]]) -> int:
    """Rows of the loss in a running median; 1 for few."""
    recorded = sum("loss" in row for row in rows)
    return 1 if recorded < SMOOTHED else max(3, recorded // 20)


def plot_embedding(x: Tensor, y: Tensor, classes: list[str] | None, path: Path, *, seed: int, title: str) -> None:
    """t-SNE of features, coloured by class if there are labels. Distances between points mean nothing.

    x: (N, F) features. y: (N,) labels, -1 for none. Raises NoMap if all rows are equal, after a collapse.
    """
    flat, _ = tsne(reduced(x.numpy(), seed), seed, iterations=500)
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    axis = figure.subplots()
    if classes is None:
        axis.scatter(*flat.T, s=5, alpha=0.7, linewidths=0)
    else:
        _draw_classes(axis, flat, y.numpy(), classes)
    axis.set_title(title, fontsize=11, parse_math=False)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    save_figure(figure, path)


def _draw_classes(axis: "Axes", flat: np.ndarray, y: np.ndarray, classes: list[str]) -> None:
    """Draw the points by class: twenty have a colour, the others are gray."""
    present = [int(c) for c in np.unique(y) if c >= 0]
    shown, others = present[:NAMED], present[NAMED:]
    colours = matplotlib.colormaps["tab10" if len(shown) <= 10 else "tab20"]
    names = {c: classes[c] for c in shown}
    drawn = [colours(i) for i in range(len(shown))]
    if others:
        y = np.where(np.isin(y, others), OTHERS, y)
        names, drawn = {OTHERS: f"{len(others)} other classes", **names}, ["#cccccc", *drawn]  # below the named ones
    scatter(axis, flat, y, names, drawn, s=6, alpha=0.75, linewidths=0)
