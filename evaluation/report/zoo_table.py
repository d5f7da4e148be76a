"""The table of all entries: what was trained, its quick accuracies, and the main results of its evaluation."""

from collections import Counter
from dataclasses import replace

from evaluation.report.cells import MISSING, Cell, Column, Table, dig, made, of_estimate, of_number, of_text
from evaluation.report.entries import neighbours, origin, place_of, quick_judge, rankme, size
from evaluation.report.judged import how
from evaluation.report.reading import Material, Member
from evaluation.results.result import Result

EVALUATED = ("linear", "knn")  # protocols with columns here
JUDGED_ON = "on held-out images, or where marked ^ on images that were trained on too"
MOST = 8  # columns of results; the section on the evaluation has all


def zoo_table(material: Material) -> Table:
    """Make a row for each entry of the zoo."""
    k = {neighbours(member.card) for member in material.members} - {None}
    judge = f"{k.pop()}-NN" if len(k) == 1 else "k-NN"
    tasks = tasks_of(material)
    columns = [
        Column("entry"),
        Column(judge, f"quick nearest-neighbour accuracy at the end of training, {JUDGED_ON}", number=True),
        Column("quick probe", f"linear classifier at the end of training, {JUDGED_ON}", number=True),
        *(Column(_title(*task), f"{task[0]} of recipes/evaluate.py on {task[1]}", number=True) for task in tasks),
        Column("method"),
        Column("plugin"),
        Column("data"),
        Column("backbone"),
        Column("epochs", "passes over the training images", number=True),
        Column("RankMe", "effective rank of the features: higher means less collapsed", number=True),
        Column("size", "trained parameters of the backbone", number=True),
        Column("date"),
    ]
    rows = [_row(member, place_of(number), tasks) for number, member in enumerate(material.members, 1)]
    return Table(f"Entries of {material.zoo}", columns, rows)


def tasks_of(material: Material) -> list[tuple[str, str]]:
    """Return protocol and data of the columns of results: of those on most entries at most eight, by data."""
    counts = Counter(task for member in material.members for task in _results(member))
    chosen = [task for task, _ in counts.most_common(MOST)]
    return sorted(chosen, key=lambda task: (task[1], EVALUATED.index(task[0])))


def _title(protocol: str, data: str) -> str:
    name = data.rstrip("/").rpartition("/")[2] or data
    return f"{'kNN' if protocol == 'knn' else protocol}, {name}"


def _results(member: Member) -> dict[tuple[str, str], Result]:
    """Return the last result of each protocol and data set."""
    return {(one.protocol, one.data): one for one in member.results if one.protocol in EVALUATED}


def _row(member: Member, place: str, tasks: list[tuple[str, str]]) -> list[Cell]:
    card, results = member.card, _results(member)
    method, _, plugins = str(dig(card, "method") or "").partition("+")
    data, date = dig(card, "data", "source"), dig(card, "date")
    about_data = made(**{name: dig(card, "data", name) for name in ("images", "digest", "licence")})
    return [
        Cell(member.name, link=place),
        _quick(member, "knn"),
        _quick(member, "probe"),
        *(
            of_estimate(results[task].estimate, how(member, results[task])) if task in results else MISSING
            for task in tasks
        ),
        of_text(method),
        Cell(plugins) if plugins else Cell("none" if method else "–", key="", aside="" if method else "not known"),
        Cell(str(data), about_data) if data else MISSING,
        of_text(dig(card, "backbone", "name")),
        of_number(dig(card, "epochs"), "{:g}", origin(card)),
        rankme(card),
        size(member),
        Cell(str(date)[:10], made(date=date), str(date)) if date else MISSING,
    ]


def _quick(member: Member, key: str) -> Cell:
    """Return a quick accuracy, marked if it is over images that the network was trained on."""
    cell = quick_judge(member, "after", key)
    if cell is MISSING or dig(member.card, "data", "held_out") is not False:
        return cell
    return replace(cell, text=f"{cell.text} ^", aside="on images that were trained on too")
