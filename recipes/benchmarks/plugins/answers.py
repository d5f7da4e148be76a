"""The tables of the study, in Markdown: one answer, then the objectives one by one, and the claims of the papers."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from plugins.plan import BESIDE, FORMS, OBJECTIVES, PRIORED
from told import Rows, differences, half_width, interval, spread

from sslkit.terminal.tables import markdown

Runs = dict[str, dict[str, Any]]
MEASURES = {"probe": "probe", "knn": "10-NN", "few_shot": "few-shot", "transfer": "transfer"}
VIEWS = ("byol", "simclr", "barlow_twins", "swav")  # objectives that compare views, of which DSA's paper speaks
WITHIN = 2.0  # points that priors may differ by where they are to differ little


def tables(runs: Runs) -> str:
    settings = list(dict.fromkeys(tuple(key.split(" | ")[i] for i in (0, 3)) for key in runs))
    parts = [answer(runs, settings), *(by_objective(runs, *setting) for setting in settings), claims(runs)]
    return "\n\n".join(part for part in parts if part)


def names(runs: Runs, place: int, data: str, epochs: str) -> list[str]:
    """The objectives (place 1) or forms (2) of the runs on a set, in the order of the plan."""
    keys = [key.split(" | ") for key in runs]
    found = dict.fromkeys(key[place] for key in keys if (key[0], key[3]) == (data, epochs))
    return [name for name in ((*OBJECTIVES, *BESIDE), tuple(FORMS))[place - 1] if name in found]


def of(runs: Runs, data: str, name: str, form: str, epochs: str) -> Rows:
    """The results by seed."""
    start = f"{data} | {name} | {form} | {epochs} | "
    return {key.removeprefix(start): row for key, row in runs.items() if key.startswith(start)}


def gains(runs: Runs, data: str, epochs: str, form: str, base: str, measure: str, only: Sequence[str] = ()) -> list:
    """form minus base in points for each objective, the mean over the seeds of both."""
    found = []
    for name in only or OBJECTIVES:
        values = differences(of(runs, data, name, form, epochs), of(runs, data, name, base, epochs), measure)
        found += [statistics.mean(values)] if values else []
    return found


def control_of(form: str) -> str:
    """Its plug-in with the prior of a random network; empty for plug-ins without prior."""
    plugin = form.split(",")[0]
    return f"{plugin}, random network" if plugin in PRIORED and "random" not in form else ""


def above(values: Sequence[float]) -> bool:
    return len(values) > 1 and statistics.mean(values) - half_width(values) > 0


def answer(runs: Runs, settings: Sequence[tuple[str, str]]) -> str:
    """Each form on each set: mean gains over the objectives, the difference to the control, and the verdict."""
    titles = [MEASURES[measure] for measure in MEASURES]
    lines = [["data", "epochs", "form", "objectives", *titles, "probe minus random network", "helps"]]
    for data, epochs in settings:
        for form in names(runs, 2, data, epochs):
            if form == "plain":
                continue
            found = [gains(runs, data, epochs, form, "plain", measure) for measure in MEASURES]
            control = control_of(form)
            beside = gains(runs, data, epochs, form, control, "probe") if control else []
            helps = above(found[0]) and (not control or above(beside))
            cells = [interval(values) for values in found]
            lines.append([data, epochs, form, str(len(found[0])), *cells, interval(beside), "yes" if helps else "no"])
    return markdown(lines, range(3, len(lines[0]) - 1))


def by_objective(runs: Runs, data: str, epochs: str) -> str:
    """Probe of plain, and what each form adds to it, mean and t-interval over the seeds."""
    forms = [form for form in names(runs, 2, data, epochs) if form != "plain"]
    lines = [[f"{data}, {epochs} epochs", "plain, %", *forms]]
    for name in names(runs, 1, data, epochs):
        plain = of(runs, data, name, "plain", epochs)
        cells = [interval(differences(of(runs, data, name, form, epochs), plain, "probe")) for form in forms]
        lines.append([name, spread([100 * row["probe"] for row in plain.values()]), *cells])
    return markdown(lines, range(1, len(lines[0])))


def claims(runs: Runs) -> str:
    """The claims of the two papers and their verdicts, by the rules of the plan."""

    def said(text: str, values: Sequence[float], holds: Callable[[float, float], bool]) -> str:
        if len(values) < 2:
            return f"* {text}: not measured."
        middle, half = statistics.mean(values), half_width(values)
        verdict = "agrees" if holds(middle - half, middle + half) else "no"
        return f"* {text}: {verdict}, {interval(values)} over {len(values)} objectives."

    lines = [
        said(
            f"{title} ({claim})",
            gains(runs, "fashion", "6", form, "plain", "probe", VIEWS),
            lambda low, _: low > 0,
        )
        for title, claim, form in (("DSA raises the probe", "+2.04", "dsa, paper"), ("ADC does", "+1.5 to 2", "adc"))
    ]
    lines += [
        said(
            f"ADC with {prior} is as with pca",
            gains(runs, "fashion", "6", f"adc, {prior}", "adc", "probe"),
            lambda low, high: low > -WITHIN and high < WITHIN,
        )
        for prior in ("identity", "hog", "wheel", "self")
    ]
    return "\n".join(lines)
