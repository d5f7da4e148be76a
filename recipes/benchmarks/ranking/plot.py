"""The picture of the consensus study: how well rules and metrics rank, what they cost, how sure the consensus is."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evaluation.ranking.agreement import Agreement
from evaluation.ranking.paired_agreement import TAU

RULE, METRIC, BASELINE, QUIET = "#0072b2", "#666666", "#b0b6bf", "#dddddd"
ROW = 0.2  # inches


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
    figure = Figure(figsize=(10, 1.3 + ROW * len(lines)), layout="constrained")
    tau, cost, sure = figure.subplots(1, 3, width_ratios=(3, 1.4, 1.6))
    _agreement(tau, lines, study)
    _cost(cost, lines)
    _probability(sure, calibration, whole)
    for axes in (tau, cost, sure):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    figure.savefig(path, dpi=110)


def _agreement(axes: Axes, lines: Sequence[tuple], study: Mapping[str, Any]) -> None:
    for place, (_, value, interval, colour, _) in enumerate(lines):
        if interval is not None:
            axes.plot(interval, [place, place], color=colour, linewidth=1.5, alpha=0.6)
        axes.plot(value, place, "o", color=colour, markersize=4)
    ceiling = study.get("ceiling", {}).get(TAU)
    if ceiling:
        axes.axvline(ceiling["value"], color="black", linewidth=0.8, linestyle=":")
        axes.text(ceiling["value"], len(lines) - 0.3, "fine-tuning with one seed", fontsize=7, ha="center")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_ylim(-0.8, len(lines) + 0.2)
    axes.set_yticks(range(len(lines)), [line[0] for line in lines])
    for label, line in zip(axes.get_yticklabels(), lines, strict=True):
        label.set_color(line[3] if line[3] == RULE else "#222222")
    axes.set_xlabel("weighted tau with fine-tuning, 95 % over models\nblue: combinations; pale: baselines", fontsize=8)
    axes.grid(axis="y", color=QUIET, linewidth=0.5)


def _cost(axes: Axes, lines: Sequence[tuple]) -> None:
    for place, (*_, colour, cost) in enumerate(lines):
        if cost:
            axes.plot(max(cost, 0.1), place, "o", color=colour, markersize=4)
    axes.set_xscale("log")
    axes.set_ylim(-0.8, len(lines) + 0.2)
    axes.set_yticks(range(len(lines)), [""] * len(lines))
    axes.set_xlabel("ms a model,\nwithout extraction", fontsize=8)
    axes.grid(axis="y", color=QUIET, linewidth=0.5)


def _probability(axes: Axes, calibration: Sequence[Sequence[str]], models: int) -> None:
    for place, (_, _, _, probability, inside, *_) in enumerate(calibration):
        filled = float(inside) == 1
        axes.plot(float(probability), place, "o", color=RULE, markerfacecolor=RULE if filled else "white", markersize=5)
    axes.axvline(1 / models, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.8, len(calibration) - 0.2)
    axes.set_yticks(range(len(calibration)), [row[0] for row in calibration])
    axes.set_xlabel("P(best) of the really best\ndotted: chance; hollow: not listed", fontsize=8)
