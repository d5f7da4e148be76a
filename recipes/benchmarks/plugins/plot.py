"""The picture of the study of guide: what each variant adds to the probe of each objective."""

import statistics
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from plugins.tables import of, settings_of, split
from told import differences, half_width

from sslkit.numerics.figures import (
    COLOURS,
    GUIDE,
    INK,
    REFERENCE,
    SMALL,
    beside,
    better,
    noted,
    panel,
    save_figure,
    titled,
)

SHOWN = {  # variant: marker, colour
    "guide": ("o", COLOURS[0]),
    "prior alone": ("D", COLOURS[6]),
    "guide, random network": ("X", REFERENCE),
    "dsa": ("s", COLOURS[1]),
    "dsa, balance 1": ("^", COLOURS[4]),
}
NOTES = [
    "Points of probe above the plain objective, means over the seeds; one seed at 50 epochs and on letters. Line: 95 % "
    "t-interval of guide over its seeds. Dotted: 2 points, the least gain that counts as help."
]


def draw(results: dict[str, Any], path: Path) -> None:
    """Write gains over plain in points, a panel for each data set and length, an objective a row."""
    runs = split(results, "runs")
    panels = list(dict.fromkeys(setting[:2] for setting in settings_of(runs)))
    rows = [[name for *panel, name in settings_of(runs) if tuple(panel) == one] for one in panels]
    figure = Figure(figsize=(3.7 * len(panels) + 1.6, 1.7 + 0.26 * max(map(len, rows))), layout="constrained")
    for axes, (data, epochs), names in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, rows, strict=True
    ):
        for place, name in enumerate(reversed(names)):
            _row(axes, runs, data, name, epochs, place)
        _describe(axes, names, f"{data}, {epochs} epochs")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    one_each = dict(zip(labels, handles, strict=True))
    beside(figure, list(one_each.values()), list(one_each))
    titled(figure, "Linear probe minus that of the plain objective")
    noted(figure, NOTES)
    save_figure(figure, path)


def _row(axes: Axes, runs: dict, data: str, name: str, epochs: int, place: int) -> None:
    """The mean gain of each variant; of guide with its 95 % t-interval over seeds."""
    plain = of(runs, data, name, "plain", epochs)
    for variant, (marker, colour) in SHOWN.items():
        gains = differences(of(runs, data, name, variant, epochs), plain, "probe")
        if not gains:
            continue
        mean = statistics.mean(gains)
        axes.plot(mean, place, marker, color=colour, markersize=5.5, label=variant, linestyle="none", zorder=3)
        if variant == "guide" and len(gains) > 1:
            ends = [mean - half_width(gains), mean + half_width(gains)]
            axes.plot(ends, [place, place], color=colour, linewidth=2, alpha=0.5)


def _describe(axes: Axes, names: list[str], title: str) -> None:
    axes.set_yticks(range(len(names)), reversed(names))
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.axvline(2, color=INK, linewidth=0.8, linestyle=":")
    axes.grid(axis="y", color=GUIDE, linewidth=0.8)
    axes.set_axisbelow(True)
    panel(axes, title)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"points of probe above plain; {better()}", fontsize=SMALL)
