"""The tables of all entries: the main results with the accuracies during training, and how each was made."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from evaluation.report.cells import (
    MISSING,
    OUTSIDE,
    Cell,
    Column,
    Table,
    dig,
    of_estimate,
    of_number,
    of_result,
    of_share,
    of_text,
    provenance,
)
from evaluation.report.charts import ACROSS, Axis, Dot, DotChart, axis_of, distinct
from evaluation.report.entries import QUICK, neighbours, origin, place_of, quick_cell, rankme, size
from evaluation.report.judged import how
from evaluation.report.reading import Material, Member
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate
from sslkit.numerics.wilson import units_of

EVALUATED = ("linear", "knn")  # protocols with columns here
MOST = 4  # columns of results; the section on the evaluation has all
TRAINED_ON = "on images that were trained on too"


def zoo_table(material: Material) -> Table:
    """Make a row for each entry of the zoo, and each model beside it with such results, the best first by the chart."""
    tasks = tasks_of(material)
    columns = [
        Column("entry"),
        *(Column(_title(*task), f"{task[0]} of recipes/evaluate.py on {task[1]}", number=True) for task in tasks),
        *(Column(quick_name(material, key), f"made during training, {held_out(material)}", True) for key in QUICK),
        Column("trained on"),
        Column("epochs", "passes over the training images", number=True),
    ]
    places = [*(place_of(number) for number in range(1, len(material.members) + 1)), *("" for _ in outside(material))]
    order = sorted(
        zip(_table_members(material), places, strict=True),
        key=lambda row: -getattr(_main(row[0], material), "value", -1.0),
    )
    rows = [_row(member, anchor, tasks) for member, anchor in order]
    return Table(f"Entries of {material.zoo}", columns, rows)


def outside(material: Material) -> list[Member]:
    """Return the models that are no entries but have results of the columns, with a mark at their names."""
    tasks = set(tasks_of(material))
    return [
        replace(member, name=f"{member.name}{OUTSIDE}") for member in material.outside if tasks & set(_results(member))
    ]


def _table_members(material: Material) -> list[Member]:
    return [*material.members, *outside(material)]


def origin_table(material: Material) -> Table:
    """Make a row for each entry on how it was made."""
    columns = [
        Column("entry"),
        Column("method"),
        Column("plugin"),
        Column("backbone"),
        Column("RankMe of features", "effective rank of the backbone's features: higher means less collapsed", True),
        Column("size", "trained parameters of the backbone", number=True),
        Column("date"),
    ]
    rows = [_origin_row(member, place_of(number)) for number, member in enumerate(material.members, 1)]
    return Table(f"How the entries of {material.zoo} were made", columns, rows)


def quick_name(material: Material, key: str) -> str:
    """Return the name of an accuracy that is made during training."""
    if key == "probe":
        return "quick probe"
    k = {neighbours(member.card) for member in material.members} - {None}
    return f"quick {k.pop()}-NN" if len(k) == 1 else "quick k-NN"


def tasks_of(material: Material) -> list[tuple[str, str]]:
    """Return protocol and data of the columns of results: of those on most entries at most four, by data."""
    counts = Counter(task for member in material.members for task in _results(member))
    chosen = sorted(counts, key=lambda task: (-counts[task], EVALUATED.index(task[0])))[:MOST]
    return sorted(chosen, key=lambda task: (task[1], EVALUATED.index(task[0])))


def chart(material: Material) -> DotChart | None:
    """Draw the main number of all entries: a result of the evaluation that all have, else the one during training."""
    title = _main_title(material)
    estimates = [(member, estimate) for member in _table_members(material) if (estimate := _main(member, material))]
    if not estimates:
        return None
    estimates.sort(key=lambda pair: -pair[1].value)
    quick = _main_task(material) is None
    bases = [_before(member) if quick else None for member, _ in estimates]
    ends = [100 * end for _, estimate in estimates for end in (estimate.value, *(estimate.interval or ()))]
    scale = axis_of([*ends, *(100 * base for base in bases if base is not None)], *ACROSS)
    names, shared = distinct([member.name for member, _ in estimates])
    drawn = [
        _dot(member, name, estimate, base, scale)
        for (member, estimate), name, base in zip(estimates, names, bases, strict=True)
    ]
    return DotChart(title, f"{title} of {len(estimates)} models, best first: {drawn[0].says}.", scale, drawn, shared)


def _dot(member: Member, name: str, estimate: Estimate, base: float | None, scale: Axis) -> Dot:
    text = of_estimate(estimate, "").text
    was = "" if base is None else f", {100 * base:.1f} % before training"
    span = [scale(100 * end) for end in estimate.interval] if estimate.interval else [None, None]
    at = None if base is None else scale(100 * base)
    mark = " ^" if base is not None and dig(member.card, "data", "held_out") is False else ""
    value = text.partition(" (")[0] + mark
    return Dot(name, value, scale(100 * estimate.value), *span, f"{member.name}: {text}{was}", base=at)


def _main_task(material: Material) -> tuple[str, str] | None:
    """Return the first result that all entries have; None if there is none."""
    shared = [task for task in tasks_of(material) if all(task in _results(member) for member in material.members)]
    return min(shared, key=lambda task: EVALUATED.index(task[0]), default=None)


def _main_title(material: Material) -> str:
    task = _main_task(material)
    if task:
        return f"{_title(*task)}: accuracy in per cent"
    sources = {str(dig(member.card, "data", "source")) for member in material.members}
    on = f" on {sources.pop()}" if len(sources) == 1 else ", each on the data that it was trained on: not comparable"
    return f"{quick_name(material, 'knn')} during training{on}; accuracy in per cent"


def _main(member: Member, material: Material) -> Estimate | None:
    task = _main_task(material)
    if task:
        return result.estimate if (result := _results(member).get(task)) else None
    return of_share(dig(member.card, "after", "knn"), units_of(dig(member.card, "after") or {}))


def _before(member: Member) -> float | None:
    estimate = of_share(dig(member.card, "before", "knn"), None)
    return None if estimate is None else estimate.value


def held_out(material: Material) -> str:
    """Say on what the accuracies during training were made."""
    kinds = {dig(member.card, "data", "held_out") for member in material.members}
    if kinds == {False}:
        return TRAINED_ON
    text = "on held-out images" if None not in kinds else "on held-out images where the card says so"
    return text + (f", or where marked ^ {TRAINED_ON}" if False in kinds else "")


def _title(protocol: str, data: str) -> str:
    name = data.rstrip("/").rpartition("/")[2] or data
    return f"{'kNN' if protocol == 'knn' else protocol}, {name}"


def _results(member: Member) -> dict[tuple[str, str], Result]:
    """Return the last result of each protocol and data set."""
    return {(result.protocol, result.data): result for result in member.results if result.protocol in EVALUATED}


def _row(member: Member, place: str, tasks: Sequence[tuple[str, str]]) -> list[Cell]:
    card, results = member.card, _results(member)
    data = dig(card, "data", "source")
    about_data = provenance(**{name: dig(card, "data", name) for name in ("images", "digest", "licence")})
    return [
        Cell(member.name, link=place),
        *(of_result(results[task], how(member, results[task])) if task in results else MISSING for task in tasks),
        *(_quick(member, key) for key in QUICK),
        Cell(str(data), about_data) if data else MISSING,
        of_number(dig(card, "epochs"), "{:g}", origin(card)),
    ]


def _origin_row(member: Member, place: str) -> list[Cell]:
    card = member.card
    method, _, plugins = str(dig(card, "method") or "").partition("+")
    date = dig(card, "date")
    return [
        Cell(member.name, link=place),
        of_text(method),
        Cell(plugins) if plugins else Cell("none" if method else "–", key="", aside="" if method else "not known"),
        of_text(dig(card, "backbone", "name")),
        rankme(card),
        size(member),
        Cell(str(date)[:10], provenance(date=date), str(date)) if date else MISSING,
    ]


def _quick(member: Member, key: str) -> Cell:
    """Return an accuracy during training, marked if it is over images that the network was trained on."""
    cell = quick_cell(member, "after", key)
    if cell is MISSING or dig(member.card, "data", "held_out") is not False:
        return cell
    return replace(cell, text=f"^ {cell.text}", aside=TRAINED_ON)
