"""Plots of a ranking: scores with their intervals, and, with truth, scores against accuracies."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evaluation.ranking.inputs.task_names import task_name
from evaluation.ranking.ranking import Ranking
from evaluation.results.names import short, wrap
from sslkit.backbones.words import is_null
from sslkit.errors import UserError
from sslkit.numerics.figures import (
    FIRST,
    GUIDE,
    OTHERS,
    PAPER,
    QUIET,
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
    from matplotlib.figure import Figure

BEST = "probability to be the best"  # title of the first panel
COLUMNS = 4  # panels side by side, which are then as wide as their labels need
WIDTH, ROW, LINE = 2.5, 0.25, 0.13  # inches of a panel, of a model in it, of a further line of its name
NAMES, NOTE = 3.0, 0.16  # inches of the models' names, of a further line of the notes
# points from a dot to its number: beside it, above, below, then further
PLACES = ((5, 0), (5, 5), (5, -5), (0, 7), (0, -7), (-5, 5), (-5, 0), (-5, -5), (10, 8), (10, -8), (-10, 8), (-10, -8))


def plot_ranking(ranking: Ranking, path: str | Path) -> Path:
    """Plot a panel for each metric: models in the ranking's order, dots of scores, lines of 95 % over images, ranks.

    Before them, where they are known, the probabilities to fine-tune best, with the expected regrets.

    A hollow dot is tied with the metric's best. A metric without any score has no panel; a note names it. Scores have
    no natural zero, so no bars are drawn, and those of different metrics cannot be compared.
    """
    scored = [k for k in range(len(ranking.metrics)) if len(ranking.order_by(k))]
    order = ranking.consensus.order()
    names = [wrap(ranking.models[m]) for m in order]
    height = sum(ROW + LINE * name.count("\n") for name in names)
    panels = [None] * (not np.isnan(ranking.consensus.best).all()) + scored
    figure, grid = _grid(len(panels), height + 0.95)
    for number, (axis, k) in enumerate(zip(grid, panels, strict=True)):
        if k is None:
            _chances(axis, ranking, order)
        else:
            _scores(axis, ranking, k, order)
        axis.set_ylim(len(order) - 0.5, -0.5)
        axis.tick_params(axis="y", length=0)
        axis.set_yticks(range(len(order)), names if number % COLUMNS == 0 else [""] * len(order), fontsize=SMALL)
        for label in axis.get_yticklabels():
            label.set_parse_math(False)
    notes = [
        f"From above: by {_order(ranking)}. Dot: score, hollow if tied with the metric's best; line: 95 % over images. "
        "Axes of scores do not start at 0, and scores of different metrics cannot be compared."
    ]
    if ranking.decision:
        taken = str(ranking.decision)
        notes.insert(0, f"{taken[:1].upper()}{taken[1:]}.")
    notes += ranking.explanation
    if any(map(is_null, ranking.models)):
        notes.append("Gray: random weights.")
    if any(ranking.mark(m, k) for m in order for k in scored):
        notes.append("Letter: source head, see the notes of the ranking; models of one letter can be compared.")
    notes += [f"No model has a score by {name}." for k, name in enumerate(ranking.metrics) if k not in scored]
    _save(figure, f"{len(order)} models ranked{_for(ranking)}, by {ranking.n:,} images", notes, Path(path))
    return Path(path)


def plot_agreement(ranking: Ranking, path: str | Path) -> Path:
    """Plot a panel for each metric: score against the accuracy after fine-tuning, with the agreement's numbers.

    Dots have the models' ranks by accuracy; their names are listed at the right. Raises UserError for a ranking
    without truth.
    """
    if ranking.truth is None:
        raise UserError("a ranking without truth has no agreement to draw: rank(..., truth={model: accuracy})")
    scored = [k for k in range(len(ranking.metrics)) if len(ranking.order_by(k))]
    order = np.argsort(-ranking.truth, kind="stable")
    listed = [f"{number}  {short(ranking.models[m])}  ({ranking.truth[m]:.3g})" for number, m in enumerate(order, 1)]
    figure, grid, beside = _grid_and_list(len(scored), len(listed) + 1)
    for k, axis in zip(scored, grid, strict=True):
        _scatter(axis, ranking, k, np.argsort(order, kind="stable") + 1)
        numbers = [
            f"{measure.name} {measure.value:.2f}" for measure in ranking.agreement.get(ranking.metrics[k], ())[:2]
        ]
        panel(axis, ranking.metrics[k], "\n".join(numbers), lines=len(numbers))
    names = {"va": "top", "fontsize": 7, "transform": beside.transAxes, "parse_math": False}
    beside.text(0, 1, "\n".join(["by accuracy", *listed]), **names)
    figure.draw_without_rendering()  # labels are placed by the final size of the panels
    for axis in grid:
        _place_labels(axis)
    notes = ["Lines: 95 % of the score over images. Axes do not start at 0."]
    notes += [f"No model has a score by {name}." for k, name in enumerate(ranking.metrics) if k not in scored]
    _save(figure, f"Score against accuracy after fine-tuning{_for(ranking)}", notes, Path(path))
    return Path(path)


def _grid(count: int, height: float) -> "tuple[Figure, list[Axes]]":
    """Make a figure of `count` panels in rows of four. height: inches of a panel."""
    from matplotlib.figure import Figure

    columns = max(1, min(count, COLUMNS))
    rows = max(1, -(-count // columns))
    figure = Figure(figsize=(WIDTH * columns + NAMES, height * rows + 0.9), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, number + 1) for number in range(count)]


def _grid_and_list(count: int, lines: int) -> "tuple[Figure, list[Axes], Axes]":
    """Make a figure of `count` panels in rows of three, and an empty axis at the right for so many lines of text."""
    from matplotlib.figure import Figure

    columns = max(1, min(count, COLUMNS - 1))
    rows = max(1, -(-count // columns))
    size = (1.2 * WIDTH * columns + NAMES, max(2.8 * rows, 0.14 * lines) + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    cells = figure.add_gridspec(rows, columns + 1, width_ratios=[*[1.2 * WIDTH] * columns, NAMES])
    panels = [figure.add_subplot(cells[number // columns, number % columns]) for number in range(count)]
    listed = figure.add_subplot(cells[:, -1])
    listed.axis("off")
    return figure, panels, listed


def _save(figure: "Figure", title: str, notes: list[str], path: Path) -> None:
    write_title(figure, title)
    write_notes(figure, notes)
    figure.set_figheight(figure.get_figheight() + NOTE * figure.get_supxlabel().count("\n"))  # not at the panels' cost
    save_figure(figure, path)


def _for(ranking: Ranking) -> str:
    return f" for {task_name(ranking.data)}" if ranking.data else ""


def _order(ranking: Ranking) -> str:
    """Return what `Consensus.order` goes by, in words."""
    consensus = ranking.consensus
    decides = {"regret": consensus.regret, "probability": consensus.best}
    return next((name for name, values in decides.items() if not np.isnan(values).all()), "consensus")


def _chances(axis: "Axes", ranking: Ranking, order: np.ndarray) -> None:
    best, regret = ranking.consensus.best[order], ranking.consensus.regret[order]
    for row, m in enumerate(order):
        colour = REFERENCE if is_null(ranking.models[m]) else FIRST
        axis.axhline(row, color=GUIDE, lw=0.8, zorder=0)
        axis.plot([0, 100 * best[row]], [row, row], color=colour, lw=1.4)
        axis.plot(100 * best[row], row, "o", ms=5.5, color=colour, clip_on=False)
        lost = "" if np.isnan(regret[row]) else f", regret {100 * regret[row]:.1f}"
        _beside(axis, "no score" if np.isnan(best[row]) else f"{100 * best[row]:.0f} %{lost}", row)
    lost = "" if np.isnan(regret).all() else "; regret: accuracy lost, in points"
    panel(axis, BEST, f"after fine-tuning{lost}")
    axis.set_xlim(0, 100)
    axis.set_xlabel(f"probability, %; {better()}", fontsize=SMALL)


def _beside(axis: "Axes", text: str, place: int) -> None:
    """Write a text at the right of a panel."""
    side = {"xycoords": ("axes fraction", "data"), "va": "center", "annotation_clip": False}
    axis.annotate(text, (1.02, place), fontsize=SMALL - 1, color=QUIET, **side)


def _scores(axis: "Axes", ranking: Ranking, k: int, order: np.ndarray) -> None:
    scores, ends = ranking.scores[order, k], ranking.ends(order, k)
    for row, m in enumerate(order):
        axis.axhline(row, color=GUIDE, lw=0.8, zorder=0)
        if np.isnan(scores[row]):
            _beside(axis, "no score", row)
            continue
        rank, colour = ranking.ranks[m, k], REFERENCE if is_null(ranking.models[m]) else FIRST
        face = PAPER if ranking.tied[m, k] and rank > 1 else colour
        axis.plot(ends[row], [row, row], color=colour, lw=1.4, zorder=1)
        axis.plot(scores[row], row, "o", ms=5.5, mfc=face, mec=colour, mew=1.2, zorder=2)
        _beside(axis, f"{rank:g} {ranking.mark(m, k)}".rstrip(), row)
    panel(axis, ranking.metrics[k], "at the right: rank")
    axis.margins(x=0.08)
    _tidy(axis)
    axis.set_xlabel(f"score; {better()}", fontsize=SMALL)


def _scatter(axis: "Axes", ranking: Ranking, k: int, places: np.ndarray) -> None:
    has_score = ~np.isnan(ranking.scores[:, k])
    scores, truth, ends = ranking.scores[has_score, k], ranking.truth[has_score], ranking.ends(has_score, k)
    whiskers = np.clip(np.stack([scores - ends[:, 0], ends[:, 1] - scores]), 0, None)
    axis.errorbar(scores, truth, xerr=whiskers, fmt="o", color=FIRST, ecolor=OTHERS, ms=4, lw=1)
    for x, y, number in zip(scores, truth, places[has_score], strict=True):
        axis.annotate(str(number), (x, y), PLACES[0], textcoords="offset points", fontsize=7, ha="center", va="center")
    axis.set_xlabel(f"score; {better()}", fontsize=SMALL)
    axis.set_ylabel("accuracy after fine-tuning", fontsize=SMALL)
    axis.margins(0.15)
    _tidy(axis)


def _tidy(axis: "Axes") -> None:
    axis.locator_params(axis="x", nbins=4)
    axis.tick_params(labelsize=SMALL - 1)


def _place_labels(axis: "Axes") -> None:
    """Move the number of each dot to the first place around it that is free; one without any is not shown."""
    taken: list[Any] = []
    for label in (text for text in axis.texts if text.xycoords == "data"):  # not the words below the title
        for position in PLACES:
            label.set_position(position)
            box = label.get_window_extent().expanded(1.15, 1.1)
            if not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
        else:
            label.set_visible(False)
