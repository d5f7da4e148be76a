"""Plots of a ranking: scores as ranked bars with their intervals, and, with truth, scores against accuracies."""

from pathlib import Path
from typing import Any

import numpy as np

from evaluation.ranking.ranking import Ranking, floor_of
from sslkit.errors import UserError
from sslkit.figures import save_figure

BAR, TIED_BAR = "#4477AA", "#99BBDD"
COLUMNS = 3  # panels side by side


def plot_ranking(ranking: Ranking, path: str | Path) -> Path:
    """Plot a panel for each metric: models by rank, bars of scores, whiskers of 95 % over images.

    Bars tied with the best are pale. Scores of different metrics cannot be compared.
    """
    figure, panels = _panels(len(ranking.metrics), 0.34 * len(ranking.models) + 1.3, 4.6)
    for k, (axis, metric) in enumerate(zip(panels, ranking.metrics, strict=True)):
        _bars(axis, ranking, k)
        axis.set_title(metric, loc="left", fontsize=10)
    figure.suptitle(f"{ranking.data}: {ranking.n:,} images; pale: tied with the best".removeprefix(": "), fontsize=10)
    save_figure(figure, Path(path))
    return Path(path)


def plot_agreement(ranking: Ranking, path: str | Path) -> Path:
    """Plot a panel for each metric: score against the accuracy after fine-tuning, with the agreement's numbers.

    Raises UserError for a ranking without truth.
    """
    if ranking.truth is None:
        raise UserError("a ranking without truth has no agreement to draw: rank(..., truth={model: accuracy})")
    figure, panels = _panels(len(ranking.metrics), 3.6, 4.2)
    for k, (axis, metric) in enumerate(zip(panels, ranking.metrics, strict=True)):
        _scatter(axis, ranking, k)
        numbers = [f"{one.name} {one.value:.2f}" for one in ranking.agreement.get(metric, ())[:2]]
        axis.set_title(f"{metric}\n{', '.join(numbers)}", loc="left", fontsize=9)
    figure.suptitle(f"{ranking.data}: score against accuracy after fine-tuning", fontsize=10)
    save_figure(figure, Path(path))
    return Path(path)


def _panels(count: int, height: float, width: float) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    columns = min(count, COLUMNS)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows + 0.4), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.axis("off")
    return figure, list(axes[:count])


def _bars(axis: Any, ranking: Ranking, k: int) -> None:
    order = ranking.ranked_by(k)
    scores, ends = ranking.scores[order, k], ranking.ends(order, k)
    start = floor_of(ends) if len(order) else 0.0
    colours = [TIED_BAR if ranking.tied[m, k] and place else BAR for place, m in enumerate(order)]
    axis.barh(range(len(order)), scores - start, left=start, color=colours, height=0.62)
    whiskers = np.clip(np.stack([scores - ends[:, 0], ends[:, 1] - scores]), 0, None)
    axis.errorbar(scores, range(len(order)), xerr=whiskers, fmt="none", ecolor="black", capsize=3, lw=1.1)
    axis.set_yticks(range(len(order)), [_short(ranking.models[m]) for m in order], fontsize=8)
    axis.invert_yaxis()
    axis.tick_params(axis="x", labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def _scatter(axis: Any, ranking: Ranking, k: int) -> None:
    known = ~np.isnan(ranking.scores[:, k])
    scores, truth = ranking.scores[known, k], ranking.truth[known]
    ends = ranking.ends(known, k)
    whiskers = np.clip(np.stack([scores - ends[:, 0], ends[:, 1] - scores]), 0, None)
    axis.errorbar(scores, truth, xerr=whiskers, fmt="o", color=BAR, ecolor="#AAAAAA", ms=5, lw=1)
    for name, x, y in zip(np.array(ranking.models)[known], scores, truth, strict=True):
        axis.annotate(_short(name), (x, y), (4, 4), textcoords="offset points", fontsize=7)
    axis.set_xlabel("score", fontsize=8)
    axis.set_ylabel("accuracy after fine-tuning", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.margins(0.15)
    axis.spines[["top", "right"]].set_visible(False)


def _short(name: str) -> str:
    return name if len(name) <= 30 else f"{name[:14]}…{name[-15:]}"
