"""The picture of the study of guide: what each variant adds to the probe of each objective."""

import statistics
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from plugins.tables import of, settings_of, split
from told import differences, half_width

SHOWN = {  # variant: marker, colour
    "guide": ("o", "#0072b2"),
    "prior alone": ("D", "#56b4e9"),
    "guide, random network": ("x", "#999999"),
    "dsa": ("s", "#d55e00"),
    "dsa, balance 1": ("s", "#e6ab02"),
}


def draw(results: dict[str, Any], path: Path) -> None:
    """Write gains over plain in points, a panel for each data set and length, an objective a row."""
    runs = split(results, "runs")
    panels = list(dict.fromkeys(setting[:2] for setting in settings_of(runs)))
    rows = [[name for *panel, name in settings_of(runs) if tuple(panel) == one] for one in panels]
    figure = Figure(figsize=(4.6 * len(panels), 1.6 + 0.3 * max(map(len, rows))), layout="constrained")
    for axes, (data, epochs), names in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, rows, strict=True
    ):
        for place, name in enumerate(reversed(names)):
            _row(axes, runs, data, name, epochs, place)
        axes.set_yticks(range(len(names)), reversed(names))
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.axvline(2, color="black", linewidth=0.8, linestyle=":")
        axes.grid(axis="y", alpha=0.2)
        axes.set_title(f"{data}, {epochs} epochs")
        axes.set_xlabel("probe minus plain, points")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    one_each = dict(zip(labels, handles, strict=True))
    figure.legend(one_each.values(), one_each.keys(), loc="outside lower center", ncols=len(SHOWN))
    figure.savefig(path, dpi=110)


def _row(axes: Any, runs: dict, data: str, name: str, epochs: int, place: int) -> None:
    """The mean gain of each variant; of guide with its 95 % t-interval over seeds."""
    plain = of(runs, data, name, "plain", epochs)
    for variant, (marker, colour) in SHOWN.items():
        gains = differences(of(runs, data, name, variant, epochs), plain, "probe")
        if not gains:
            continue
        mean = statistics.mean(gains)
        axes.plot(mean, place, marker, color=colour, label=variant, linestyle="none", zorder=3)
        if variant == "guide" and len(gains) > 1:
            ends = [mean - half_width(gains), mean + half_width(gains)]
            axes.plot(ends, [place, place], color=colour, linewidth=2, alpha=0.5)
