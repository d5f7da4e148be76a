"""The picture of the study: what each form adds to the probe, objective by objective and in the mean."""

import statistics
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from plugins.answers import FASHION, Runs, Setting, control_of, forms_of, gains, of_part, settings_of, title_of
from plugins.plan import CONTROLS, CORE, OBJECTIVES, OTHER_PRIORS, PRIORED
from seeds import half_width

from sslkit.numerics.figures import (
    COLOURS,
    GUIDE,
    INK,
    REFERENCE,
    SMALL,
    beside,
    better,
    panel,
    save_figure,
    write_notes,
    write_title,
)

MEAN, CONTROL = "mean", "prior of a random network"
NOTES = [
    "Points of probe above the plain objective, the mean over the seeds of an objective. Bar: the mean over the "
    "objectives and its 95 % t-interval. Cross: the mean with a random network as the prior. Below: one seed."
]


def draw(runs: Runs, path: Path) -> None:
    """Write gains over plain in points: a panel for each data set and length; below, one for each plug-in's priors."""
    settings = settings_of(runs)
    forms = [
        form for form in CORE if form not in CONTROLS and any(form in forms_of(runs, setting) for setting in settings)
    ]
    figure = Figure(figsize=(2.9 * len(settings) + 3.2, 6), layout="constrained")
    above, below = figure.add_gridspec(2, 1)
    for cell, setting in zip(above.subgridspec(1, len(settings)), settings, strict=True):
        _panel(figure.add_subplot(cell), runs, setting, {form: form for form in forms}, title_of(setting))
    for cell, plugin in zip(below.subgridspec(1, len(PRIORED)), PRIORED, strict=True):
        rows = {form.removeprefix(f"{plugin}, "): form for form in OTHER_PRIORS if form.startswith(plugin)}
        title = f"{title_of(FASHION)}: {plugin} by prior"
        _panel(figure.add_subplot(cell), of_part(runs, "priors"), FASHION, {"pca": plugin, **rows}, title)
    marks = dict(zip(*reversed(figure.axes[0].get_legend_handles_labels()), strict=True))
    names = [name for name in (*OBJECTIVES, MEAN, CONTROL) if name in marks]
    beside(figure, [marks[name] for name in names], names)
    write_title(figure, "Linear probe minus that of the plain objective")
    write_notes(figure, NOTES)
    save_figure(figure, path)


def _panel(axes: Axes, runs: Runs, setting: Setting, forms: dict[str, str], title: str) -> None:
    for row, form in enumerate(reversed(forms.values())):
        _row(axes, runs, setting, form, row)
    _describe(axes, list(forms), title)


def _row(axes: Axes, runs: Runs, setting: Setting, form: str, row: int) -> None:
    by_objective = gains(runs, setting, form, "plain")
    if not by_objective:
        return
    middle = statistics.mean(by_objective.values())
    if len(by_objective) > 1:
        half = half_width(list(by_objective.values()))
        axes.plot([middle - half, middle + half], [row, row], color=INK, linewidth=1.2, alpha=0.5, zorder=1)
    axes.plot(middle, row, "|", color=INK, markersize=11, markeredgewidth=2, label=MEAN, linestyle="none", zorder=2)
    if control := gains(runs, setting, control_of(form), "plain"):
        at, look = statistics.mean(control.values()), {"color": REFERENCE, "linestyle": "none", "markersize": 6}
        axes.plot(at, row, "x", label=CONTROL, zorder=2, **look)
    for name, colour in zip(OBJECTIVES, COLOURS, strict=False):
        if name in by_objective:
            axes.plot(
                by_objective[name], row, "o", color=colour, markersize=4.5, label=name, linestyle="none", zorder=3
            )


def _describe(axes: Axes, rows: list[str], title: str) -> None:
    axes.set_yticks(range(len(rows)), reversed(rows) if axes.get_subplotspec().is_first_col() else [""] * len(rows))
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.grid(axis="y", color=GUIDE, linewidth=0.8)
    axes.set_axisbelow(True)
    panel(axes, title)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"points above plain; {better()}", fontsize=SMALL)
