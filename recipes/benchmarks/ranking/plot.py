"""The picture of the consensus study: how well rules and metrics rank, what they cost, how sure the consensus is."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evaluation.ranking.truth.agreement import Agreement
from evaluation.ranking.truth.paired_agreement import TAU
from sslkit.numerics.figures import (
    FIRST,
    GUIDE,
    INK,
    QUIET,
    REFERENCE,
    SMALL,
    better,
    noted,
    panel,
    save_figure,
    titled,
)

RULE, METRIC, BASELINE = FIRST, INK, REFERENCE
ROW = 0.2  # inches
NOTES = [
    "Blue: combinations, fitted on the other tasks; black: single metrics; gray: baselines. Line: 95 % over models. "
    "Dotted at the left: fine-tuning with one seed against the others, as much as can be expected.",
    "Right: the task's best model by fine-tuning; dotted: a model at random; hollow: not on the shortlist.",
]


def draw(
    study: Mapping[str, Any], rules: Mapping[str, Agreement], calibration: Sequence[Sequence[str]], path: Path
) -> None:
    """Write three panels: weighted tau with 95 % over models, milliseconds a model, P(best) of the really best model.

    study: the results of the ranking study. rules: by name. calibration: rows of task, correlation, spread, ...
    """
    lines = [(name, one.value, one.interval, RULE, None) for name, one in rules.items()]
    whole = study["n_models"]
    for name, row in study["metrics"].items():
        found = row["mean"].get(TAU)
        if found is not None and row["models"] == whole:
            colour = BASELINE if row["baseline"] else METRIC
            lines.append((name, found["value"], found["interval"], colour, 1000 * row["seconds_per_model"]))
    lines.sort(key=lambda line: line[1])
    figure = Figure(figsize=(10, 2.1 + ROW * len(lines)), layout="constrained")
    tau, cost, sure = figure.subplots(1, 3, width_ratios=(3, 1.4, 1.6))
    _agreement(tau, lines, study)
    _cost(cost, lines)
    _probability(sure, calibration, whole)
    titled(figure, f"{whole} models ranked by metrics and combinations, against fine-tuning")
    noted(figure, NOTES)
    save_figure(figure, path)


def _agreement(axes: Axes, lines: Sequence[tuple], study: Mapping[str, Any]) -> None:
    for place, (_, value, interval, colour, _) in enumerate(lines):
        if interval is not None:
            axes.plot(interval, [place, place], color=colour, linewidth=1.4, alpha=0.6)
        axes.plot(value, place, "o", color=colour, markersize=4.5)
    ceiling = study.get("ceiling", {}).get(TAU)
    if ceiling:
        axes.axvline(ceiling["value"], color=INK, linewidth=0.8, linestyle=":")
    axes.axvline(0, color=INK, linewidth=0.8)
    _rows(axes, [line[0] for line in lines])
    for label, line in zip(axes.get_yticklabels(), lines, strict=True):
        label.set_color(line[3] if line[3] != BASELINE else QUIET)
    panel(axes, "agreement with fine-tuning")
    axes.set_xlabel(f"weighted tau; {better()}", fontsize=SMALL)


def _cost(axes: Axes, lines: Sequence[tuple]) -> None:
    for place, (*_, colour, cost) in enumerate(lines):
        if cost:
            axes.plot(max(cost, 0.1), place, "o", color=colour, markersize=4.5)
    axes.set_xscale("log")
    _rows(axes, [""] * len(lines))
    panel(axes, "ms a model")
    axes.set_xlabel(f"without extraction, log\n{better(False)}", fontsize=SMALL)


def _probability(axes: Axes, calibration: Sequence[Sequence[str]], models: int) -> None:
    for place, (_, _, _, probability, inside, *_) in enumerate(calibration):
        face = RULE if float(inside) == 1 else "white"
        axes.plot(100 * float(probability), place, "o", color=RULE, markerfacecolor=face, markersize=5, clip_on=False)
    axes.axvline(100 / models, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xlim(0, 100)
    _rows(axes, [row[0] for row in calibration])
    panel(axes, "P(best) of the best")
    axes.set_xlabel(f"probability, %; {better()}", fontsize=SMALL)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.8, len(names) - 0.2)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=GUIDE, linewidth=0.8)
    axes.set_axisbelow(True)
