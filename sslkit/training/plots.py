"""The pictures of a run: its views, its loss terms over time, and the embedding."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from sslkit.figures import reduced, save_figure, scatter, tsne

matplotlib.use("Agg")


def plot_terms(rows: list[dict[str, float]], terms: list[str], path: Path) -> None:
    """One panel per loss term over the steps, and one for kNN and probe if there are labels."""
    noted = [r for r in rows if "knn" in r]
    panels = [*terms, *(["accuracy"] if noted else [])]
    figure = Figure(figsize=(3.6 * len(panels), 3.2), layout="constrained")
    for axis, name in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
        if name == "accuracy":
            for key, label in (("knn", "kNN"), ("probe", "online probe")):
                axis.plot([r["step"] for r in noted], [100 * r[key] for r in noted], marker="o", label=label)
            axis.set(title="held-out accuracy, %", xlabel="step")
            axis.legend(frameon=False)
        else:
            points = [(r["step"], r[name]) for r in rows if name in r]
            axis.plot(*zip(*points, strict=True), color="#1f5fa8")
            axis.set(title=name, xlabel="step")
        axis.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


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
        shown = [c for c in range(len(classes)) if (y == c).any()][:20]
        colours = matplotlib.colormaps["tab10" if len(shown) <= 10 else "tab20"]
        names = {c: classes[c] for c in shown}
        points = {"s": 6, "alpha": 0.75, "linewidths": 0}
        scatter(axis, flat, y.numpy(), names, [colours(i) for i in range(len(shown))], **points)
    axis.set(title=title, xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    save_figure(figure, path)
