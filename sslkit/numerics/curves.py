"""loss.png: what a person can judge, accuracy, rank and spread, and then the loss, its terms and their gradients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from sslkit.numerics.figures import (
    FIRST,
    GUIDE,
    REFERENCE,
    SECOND,
    SMALL,
    better,
    line_style,
    panel,
    save_figure,
    write_notes,
    write_title,
)
from sslkit.numerics.wilson import units_of, wilson

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Rows = Sequence[Mapping[str, float]]

ACCURACIES = {True: "accuracy on held-out images", False: "accuracy on images that were trained on too"}
RANK, SPREAD = "effective rank (RankMe)", "spread (std)"  # titles of panels
# range of a term, in ranges without its first tenth, above which that is left out of the picture: a guess by eye
FLATTENED = 4.0
SHARES = "gradient norm / the objective's, log scale"
WORDS = {
    RANK: "of the projections; falls to 1 in a collapse",
    SPREAD: "of the projections; near 1, falls to 0 in a collapse",
    SHARES: "of the regularisers; 1: as strong as the objective",
    "loss": "the sum of its terms; falls as it is learned",
    "align": "falls as the views of an image agree",
    "constrain": "keeps images apart; falls as they spread",
    "dsa/arrange": "over pairs of arranged images; falls as it is learned",
    "dsa/consistency": "falls as the arrangement is that of the prior",
    "guide": "falls as the prior's features are predicted",
    "koleo": "falls as nearest neighbours move apart",
    "sigreg": "falls as embeddings become normally distributed",
}
COLUMNS, WIDTH, HIGH = 3, 3.9, 2.7  # panels side by side; inches of a panel
FEW, SMOOTHED = 20, 60  # rows up to which each has a dot, and from which a running median is drawn
MARKS = 12  # most lines that mark epochs
EVALUATED = "eval/"  # what the columns of evaluators begin with: eval/NAME/MEASURE, its ends, and eval/NAME/seconds
LOWER, UPPER, SECONDS = "/low", "/high", "/seconds"


@dataclass(frozen=True)
class Judged:
    """The origin of the accuracies. k: neighbours. held_out: whether the images were not trained on.

    before: of the backbone before training: knn, probe, and n images; empty without labels. start: its weights.
    evaluated: the main columns of evaluators, and whether each is shown in percent.
    """

    k: int = 10
    held_out: bool = True
    before: Mapping[str, float] | None = None
    start: str = "random weights"
    evaluated: Mapping[str, bool] = field(default_factory=dict)

    @property
    def images(self) -> int:
        return int((self.before or {}).get("n", 0))

    @property
    def units(self) -> int:
        """The number that the intervals are over."""
        return units_of(self.before or {})


def plot_terms(rows: Rows, terms: Sequence[str], path: Path, judged: Judged = Judged()) -> None:
    """Plot over the steps, in this order: accuracies of k-NN and online probe, measures of evaluators, effective rank,
    spread; the loss, each of its terms, the shares of regularisers in the gradient.

    rows: of metrics.csv. path: in the folder of the run, whose name is the title.
    """
    names = ["loss", *terms] if len(terms) > 1 else list(terms) or ["loss"]
    keys = dict.fromkeys(key for row in rows for key in row)
    ours = [key for key in judged.evaluated if key in keys]
    shares = [key for key in keys if key.endswith("/share") and not key.startswith(EVALUATED)]
    panels = {
        **({ACCURACIES[judged.held_out]: partial(_draw_accuracies, judged=judged)} if "knn" in keys else {}),
        **{key: partial(_draw_measure, key=key, scale=100 if judged.evaluated[key] else 1) for key in ours},
        **({RANK: partial(_draw_value, key="rankme", floor=1.0)} if "rankme" in keys else {}),
        **({SPREAD: partial(_draw_value, key="std", floor=0.0)} if "std" in keys else {}),
        **{name: partial(_draw_term, name=name) for name in names},
        **({SHARES: partial(_draw_shares, keys=shares)} if shares else {}),
    }
    columns = min(len(panels), COLUMNS) if len(panels) != COLUMNS + 1 else 2
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDTH * columns, HIGH * lines + 0.7), layout="constrained")
    for number, (name, draw) in enumerate(panels.items()):
        axis = figure.add_subplot(lines, columns, number + 1)
        draw(axis, rows)
        words = WORDS.get(name, "a term of the loss; falls as it is learned")
        if name in ACCURACIES.values():
            words = better() + (f"; band: 95 % interval, {judged.images:,} images" if judged.images else "")
        if name in ours:
            words = "by an evaluator, from the start on; band: 95 % interval"
        panel(axis, name.removeprefix(EVALUATED), words)
        _mark_epochs(axis, rows, label=number + columns >= len(panels))
    write_title(figure, path.parent.name)
    write_notes(figure, [" ".join(_notes(rows, terms, judged))])
    save_figure(figure, path)


def _notes(rows: Rows, terms: Sequence[str], judged: Judged) -> list[str]:
    notes = []
    if judged.before and any("knn" in row for row in rows):
        notes += [f"Dotted: before training, {judged.start}."]
        notes += ["The quick probe is fitted anew, the online probe goes on learning."]
    notes += ["Terms are shown as they enter the loss, weights included."] if len(terms) > 1 else []
    notes += ["Pale: as recorded, without the extremes; dark: running median."] if _window(rows) > 1 else []
    return notes


def _draw_term(axis: "Axes", rows: Rows, name: str) -> None:
    steps, values = np.array([(row["step"], row[name]) for row in rows if name in row]).reshape(-1, 2).T
    window = _window(rows)
    alone = {"marker": "o", "markersize": 3} if len(steps) <= FEW else {}
    axis.plot(steps, values, color=FIRST, alpha=0.3 if window > 1 else 1, lw=1 if window > 1 else 1.5, **alone)
    if window > 1:
        middle = np.median(np.lib.stride_tricks.sliding_window_view(values, window), axis=1)
        axis.plot(steps[window // 2 : window // 2 + len(middle)], middle, color=FIRST, lw=1.8)
        axis.set_ylim(*_limits(values, middle))


def _limits(values: np.ndarray, middle: np.ndarray) -> tuple[float, float]:
    """Both ends of an axis that neither a lone peak nor the first steps flatten. middle: the running median."""
    later = middle[len(middle) // 10 :]  # a balance is found in the first steps
    if np.ptp(middle) > FLATTENED * np.ptp(later) > 0:
        seen = later
    else:
        seen = np.concatenate([middle, np.quantile(values, [0.01, 0.99])])
    edge = 0.06 * (np.ptp(seen) or 1)
    return seen.min() - edge, seen.max() + edge


def _draw_value(axis: "Axes", rows: Rows, key: str, floor: float) -> None:
    """Draw a value of each epoch on an axis that begins at that of a collapse."""
    steps, values = zip(*((row["step"], row[key]) for row in rows if key in row), strict=True)
    axis.plot(steps, values, color=FIRST, marker="o", markersize=4 * (len(steps) <= FEW))
    axis.set_ylim(floor, max(floor + 1, 1.12 * max(values)))
    ticks, top = axis.get_yticks(), axis.get_ylim()[1]
    axis.set_yticks([floor, *(tick for tick in ticks if floor + 0.5 * (ticks[1] - ticks[0]) < tick <= top)])


def _draw_accuracies(axis: "Axes", rows: Rows, judged: Judged) -> None:
    for key, label, earlier, colour, marker in (
        ("knn", f"{judged.k}-NN", f"{judged.k}-NN before", FIRST, "o"),
        ("probe", "online probe", "quick probe before", SECOND, "s"),
    ):
        points = [(row["step"], row[key]) for row in rows if key in row]
        if not points:
            continue
        steps, shares = zip(*points, strict=True)
        dots = {"marker": marker, "markersize": 4 * (len(steps) <= FEW)}
        axis.plot(steps, [100 * share for share in shares], color=colour, label=label, **dots)
        if judged.images:
            low, high = zip(*(wilson(share, judged.units) for share in shares), strict=True)
            axis.fill_between(steps, *(100 * np.array(end) for end in (low, high)), color=colour, alpha=0.18, lw=0)
        if judged.before:
            axis.axhline(100 * judged.before[key], color=colour, lw=1.2, ls=":", label=earlier)
            axis.plot(0, 100 * judged.before[key], color=colour, marker=marker, markersize=4, clip_on=False)
    axis.yaxis.set_major_formatter("{x:g} %")
    axis.legend(frameon=False, fontsize=SMALL)


def _draw_measure(axis: "Axes", rows: Rows, key: str, scale: float) -> None:
    points = [row for row in rows if key in row]
    steps = [row["step"] for row in points]
    middle, low, high = (scale * np.array([row.get(key + end, np.nan) for row in points]) for end in ("", LOWER, UPPER))
    axis.plot(steps, middle, color=FIRST, marker="o", markersize=4 * (len(steps) <= FEW))
    axis.fill_between(steps, low, high, color=FIRST, alpha=0.18, lw=0)
    axis.yaxis.set_major_formatter("{x:g} %" if scale > 1 else "{x:g}")


def _draw_shares(axis: "Axes", rows: Rows, keys: Sequence[str]) -> None:
    for number, key in enumerate(keys):
        points = [(row["step"], row[key]) for row in rows if row.get(key, 0) > 0]
        if points:
            label = key.rpartition("/")[0]  # the regulariser
            axis.plot(*zip(*points, strict=True), label=label, markersize=3, **line_style(number))
    axis.axhline(1, color=REFERENCE, lw=0.8)
    axis.set_yscale("log")
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False, fontsize=SMALL)


def _mark_epochs(axis: "Axes", rows: Rows, *, label: bool) -> None:
    """Draw a line at the end of every epoch, or of every tenth, ..., so that there are at most twelve."""
    ends = {row["epoch"]: row["step"] for row in rows if row["epoch"]}
    rounded = (digit * 10**zeros for zeros in count() for digit in (1, 2, 5))
    every = next(number for number in rounded if MARKS * number >= len(ends))
    for epoch, step in ends.items():
        if epoch % every == 0:
            axis.axvline(step, color=GUIDE, lw=0.8, zorder=0)
    axis.set_xlim(0, 1.02 * max(ends.values(), default=1))
    axis.locator_params(axis="x", nbins=5, integer=True)
    if label:
        axis.set_xlabel(f"step; lines mark {'epochs' if every == 1 else f'every {every} epochs'}", fontsize=SMALL)


def _window(rows: Rows) -> int:
    """Rows of the loss in a running median; 1 for few."""
    recorded = sum("loss" in row for row in rows)
    return 1 if recorded < SMOOTHED else max(3, recorded // 20)
