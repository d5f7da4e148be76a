"""The tables of the study, in Markdown: one answer, then the objectives one by one, and the claims of the papers."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from keys import MARK, find_stale
from plugins.plan import (
    ALONE,
    BESIDE,
    BESIDE_KIND,
    CONTROLS,
    CORE,
    FORMS,
    OBJECTIVES,
    OTHER_PRIORS,
    PARTS,
    PRIORED,
    PRIORS,
    parts_of,
    parts_of_form,
)
from seeds import Rows, by_chance, differences, half_width, interval, spread

from evaluation.results.statistics import over_seeds
from evaluation.studies.claims import outcome
from sslkit.terminal.tables import markdown

Runs = dict[str, dict[str, Any]]
Setting = tuple[str, str]  # data set and epochs
OTHERS = {  # measures beside the probe
    "knn": "10-NN",
    "few_shot": "few-shot",
    "transfer": "transfer",
    "inter": "inter-class distance",
    "intra": "intra-class variance",
}
FASHION = ("fashion", "6")
VIEWS = ("byol", "simclr", "barlow_twins", "swav")  # objectives that compare views, of which DSA's paper speaks
WITHIN = 2.0  # points that priors may differ by where they are to differ little
ACCURACIES = {"probe": "probe"} | {key: OTHERS[key] for key in ("knn", "few_shot", "transfer")}
JUDGED = tuple(form for form in CORE if form not in CONTROLS)
FROM_ALONE = list(zip(PRIORED, ALONE, strict=True))  # alone: the objective's terms times 0
FROM_DEFAULT = [("dsa, paper", "dsa")]
LEGEND = """# Tables of the study

Points over the plain objective: the mean over objectives of their means over seeds, and its 95 % t-interval over
objectives; where the objectives are columns, the mean and interval over seeds. Other measures times 100: few-shot,
5-way 5-shot on letters that no run was trained with; transfer, the mean probe on the other sets; the distance between
class means (more is better) and the variance within classes (less is better). *: it helps by the rule of plan.py."""
OLDER = "the code that made it computes something else now (`recipes/benchmarks/fingerprints.py`)"
NOTHING_OLDER = f"{MARK.strip()}: nothing here is of older code (`recipes/benchmarks/fingerprints.py`)."


def tables(runs: Runs) -> str:
    older = [name for name in OBJECTIVES if name in find_stale(runs, parts_of).parts]
    rest = [name for name in OBJECTIVES if name not in older]
    sections = {
        "The five objectives": [answer(runs)],
        **({f"Without {', '.join(older)}, of older code": [answer(runs, rest)]} if older and rest else {}),
        f"The four that compare views: {', '.join(VIEWS)}": [answer(runs, VIEWS)],
        "By prior": [priors(runs), other_measures(of_part(runs, "priors"), FASHION, OTHER_PRIORS)],
        "One form minus another (*: an interval without 0)": [minus(runs, FROM_ALONE), minus(runs, FROM_DEFAULT)],
        "Objective by objective": [by_objective(runs, setting) for setting in settings_of(runs)],
        "Other measures": [other_measures(runs, setting) for setting in settings_of(runs)],
        "The claims of the papers": [claims(runs)],
    }
    parts = (text for title, texts in sections.items() for text in (f"## {title}", *texts))
    return "\n\n".join([LEGEND, of_older_code(runs), *parts]) + "\n"


def of_page(runs: Runs) -> list[str]:
    """The tables that the study's page shows, too."""
    return [answer(runs), other_measures(runs, FASHION), priors(runs), minus(runs, FROM_ALONE).partition("\n\n")[0]]


def of_older_code(runs: Runs) -> str:
    """The meaning of the marks, and what is of older code."""
    stale = find_stale(runs, parts_of)
    if not stale.parts and not stale.measures:
        return NOTHING_OLDER
    parts = [f"{name} ({count} runs)" for name, count in stale.parts.items()]
    parts += [f"{ACCURACIES.get(name) or OTHERS[name]} (all {len(runs)} runs)" for name in sorted(stale.measures)]
    means = [name for name in OBJECTIVES if name in stale.parts]
    also = f" Every mean over objectives has runs of {' and '.join(means)}." if means else ""
    return (
        f"{MARK.strip()}: {OLDER}: {', '.join(parts)}.{also} `run.py --stale MINUTES` runs the cheapest of them again."
    )


def mark_form(runs: Runs, form: str) -> str:
    """The form, marked if runs of it are of older code of its plug-in or prior."""
    of_form = {key: row for key, row in runs.items() if key.split(" | ")[2] == form}
    parts = (component for kind in BESIDE_KIND.values() for component in parts_of_form(form, kind))
    return find_stale(of_form, parts_of).mark(form, *parts)


def settings_of(runs: Runs) -> list[Setting]:
    """The data sets and lengths that have runs, in the order of the plan."""
    settings = dict.fromkeys(setting for setting, *_ in _plan())
    return [setting for setting in settings if any(_is_of(key, setting) for key in runs)]


def _plan() -> list[tuple[Setting, str, str]]:
    """(set and length, objective, form) of each run of the plan."""
    runs = (run for section in PARTS.values() for run in section.runs())
    return [((data, str(epochs)), name, form) for data, name, form, epochs, _ in runs]


def title_of(setting: Setting) -> str:
    return f"{setting[0]}, {setting[1]} epochs"


def forms_of(runs: Runs, setting: Setting) -> list[str]:
    """The forms but "plain" that have runs, in the order of the plan."""
    forms = {key.split(" | ")[2] for key in runs if _is_of(key, setting)}
    return [form for form in FORMS if form in forms and form != "plain"]


def objectives_of(runs: Runs, setting: Setting) -> list[str]:
    names = {key.split(" | ")[1] for key in runs if _is_of(key, setting)}
    return [name for name in (*OBJECTIVES, *BESIDE) if name in names]


def _is_of(key: str, setting: Setting) -> bool:
    data, _, _, epochs, _ = key.split(" | ")
    return (data, epochs) == setting


def of(runs: Runs, setting: Setting, name: str, form: str) -> Rows:
    """The results of a form of an objective by seed."""
    start = f"{setting[0]} | {name} | {form} | {setting[1]} | "
    return {key.removeprefix(start): row for key, row in runs.items() if key.startswith(start)}


def over(runs: Runs, setting: Setting, name: str, form: str, base: str, measure: str = "probe") -> list[float]:
    """form minus base in points, seed by seed."""
    return differences(of(runs, setting, name, form), of(runs, setting, name, base), measure)


def gains(
    runs: Runs, setting: Setting, form: str, base: str, measure: str = "probe", only: Sequence[str] = OBJECTIVES
) -> dict[str, float]:
    """form minus base in points by objective, the mean over the seeds of both."""
    values_by_objective = {name: over(runs, setting, name, form, base, measure) for name in only}
    return {name: statistics.mean(values) for name, values in values_by_objective.items() if values}


def control_of(form: str) -> str:
    """Its plug-in with the prior of a random network; empty for the control itself and plug-ins without prior."""
    plugin = form.split(",")[0]
    return f"{plugin}, random network" if plugin in PRIORED and "random" not in form else ""


def differs(values: Sequence[float]) -> bool:
    """Return whether their mean has a 95 % interval without 0."""
    return len(values) > 1 and bool(abs(statistics.mean(values)) > half_width(values))


def above(values: Sequence[float]) -> bool:
    """Return whether that interval is above 0."""
    return differs(values) and statistics.mean(values) > 0


def helps(gained: Sequence[float], control: str, over_control: Sequence[float]) -> bool:
    """The rule of the plan: above plain, and above the control if its plug-in has a prior."""
    return above(gained) and (not control or above(over_control))


def answer(runs: Runs, only: Sequence[str] = OBJECTIVES) -> str:
    """A form a row: its mean gain over the objectives on each set, and over its control; *: it helps."""
    settings = settings_of(runs)
    lines = [["form", *(text for setting in settings for text in (title_of(setting), "over random network"))]]
    for form in (form for form in JUDGED if any(form in forms_of(runs, setting) for setting in settings)):
        lines.append(
            [mark_form(runs, form), *(cell for setting in settings for cell in gain_cells(runs, setting, form, only))]
        )
    return markdown(lines, range(1, len(lines[0])))


def gain_cells(runs: Runs, setting: Setting, form: str, only: Sequence[str]) -> tuple[str, str]:
    """The mean gain of a form over some objectives, * if it helps, and the one over its control."""
    control = control_of(form)
    gained = list(gains(runs, setting, form, "plain", only=only).values())
    beside = list(gains(runs, setting, form, control, only=only).values()) if control else []
    whole = len(gained) == len({name for of, name, planned in _plan() if (of, planned) == (setting, form)} & {*only})
    return interval(gained) + " *" * (whole and helps(gained, control, beside)), interval(beside)


def priors(runs: Runs) -> str:
    """A prior a row: what each plug-in adds with it on fashion, with the seeds and objectives that all priors have."""
    runs = of_part(runs, "priors")
    heads = (text for plugin in PRIORED for text in (mark_form(runs, plugin), "over random network"))
    lines = [[f"{title_of(FASHION)}, prior", *heads]]
    for prior in ("pca", *PRIORS, "alone"):
        forms = [plugin if prior == "pca" else f"{plugin}, {prior}" for plugin in PRIORED]
        pairs = [gain_cells(runs, FASHION, form, VIEWS) for form in forms]
        lines.append([prior, *(cell for pair in pairs for cell in pair)])
    return markdown(lines, range(1, len(lines[0])))


def minus(runs: Runs, pairs: Sequence[tuple[str, str]]) -> str:
    """A form and set a row: it minus another form, over objectives that compare views, by measure; *: not 0."""
    lines, beside = [["one form minus another", *_mark_measures(runs, ACCURACIES)]], []
    for (form, base), setting in itertools.product(pairs, settings_of(runs)):
        gains_by_measure = [list(gains(runs, setting, form, base, measure, VIEWS).values()) for measure in ACCURACIES]
        if any(gains_by_measure):
            cells = (interval(values) + " *" * differs(values) for values in gains_by_measure)
            marked = mark_form({key: row for key, row in runs.items() if _is_of(key, setting)}, form)
            lines.append([f"{marked} - {base.removeprefix(f'{form}, ')}, {title_of(setting)}", *cells])
            beside += [differs(values) for values in gains_by_measure if len(values) > 1]
    return f"{markdown(lines, range(1, len(lines[0])))}\n\n{by_chance(len(beside), sum(beside))}"


def of_part(runs: Runs, part: str) -> Runs:
    """The runs, of any form, with an objective and a seed that a part of the plan has."""
    wanted = {(name, str(seed)) for _, name, _, _, seed in PARTS[part].runs()}
    return {key: row for key, row in runs.items() if (key.split(" | ")[1], key.split(" | ")[4]) in wanted}


def other_measures(runs: Runs, setting: Setting, forms: Sequence[str] = JUDGED) -> str:
    """A form a row: its mean gain over the objectives in each of the other measures, times 100."""
    runs = {key: row for key, row in runs.items() if _is_of(key, setting)}
    lines = [[title_of(setting), *_mark_measures(runs, OTHERS)]]
    for form in (form for form in forms_of(runs, setting) if form in forms):
        by_measure = (gains(runs, setting, form, "plain", measure) for measure in OTHERS)
        lines.append([mark_form(runs, form), *(interval(list(gained.values())) for gained in by_measure)])
    return markdown(lines, range(1, len(lines[0])))


def _mark_measures(runs: Runs, names: Mapping[str, str]) -> list[str]:
    stale = find_stale(runs, parts_of)
    return [stale.mark(text, name) for name, text in names.items()]


def by_objective(runs: Runs, setting: Setting) -> str:
    """A form a row: what it adds to each objective's probe, mean and t-interval over the seeds; * where it helps."""
    names = objectives_of(runs, setting)
    plain = [spread([100 * row["probe"] for row in of(runs, setting, name, "plain").values()]) for name in names]
    runs = {key: row for key, row in runs.items() if _is_of(key, setting)}
    stale = find_stale(runs, parts_of)
    lines = [[title_of(setting), *map(stale.mark, names)], ["plain, %", *plain]]
    for form in forms_of(runs, setting):
        control, cells = control_of(form), []
        for name in names:
            gained = over(runs, setting, name, form, "plain")
            beside = over(runs, setting, name, form, control) if control else []
            cells.append(interval(gained) + " *" * helps(gained, control, beside))
        lines.append([mark_form(runs, form), *cells])
    return markdown(lines, range(1, len(lines[0])))


def claims(runs: Runs) -> str:
    """The claims of the two papers and their verdicts, by the rule of the papers' studies."""
    lines = [
        _claim(f"{title} ({claim})", gains(runs, FASHION, form, "plain", only=VIEWS), 1)
        for title, claim, form in (("DSA raises the probe", "+2.04", "dsa, paper"), ("ADC does", "+1.5 to 2", "adc"))
    ]
    lines += [
        _claim(f"ADC with {prior} is as with pca", gains(runs, FASHION, f"adc, {prior}", "adc"), 0)
        for prior in ("identity", "hog", "wheel", "self")
    ]
    return "\n".join(lines)


def _claim(text: str, found: dict[str, float], sign: int) -> str:
    values = list(found.values())
    if len(values) < 2:
        return f"* {text}: not measured."
    verdict = outcome(over_seeds(values, unit="points"), sign, WITHIN)
    return f"* {text}: {verdict}, {interval(values)} over {len(values)} objectives."
