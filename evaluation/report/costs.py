"""Costs of each model: seconds of training, of the protocols, of the metrics."""

import numpy as np

from evaluation.report import commands
from evaluation.report.cells import MISSING, Cell, Column, Table, dig, is_number, of_number, of_seconds, provenance
from evaluation.report.reading import Material, Member

COLUMNS = [
    Column("model"),
    Column("training", "seconds of the epochs, without data preparation and the final evaluation", number=True),
    Column("per epoch", "", number=True),
    Column("images a second", "mean over the epochs", number=True),
    Column("waiting for data", "share of the training time, mean over the epochs", number=True),
    Column("evaluation", "seconds of all protocols, without the extraction", number=True),
    Column("metrics", "seconds of all transferability metrics on all tasks, without the extraction", number=True),
    Column("dropped images", "unreadable images, not used for training", number=True),
]


def costs_table(material: Material) -> Table:
    members = [*material.members, *material.outside]
    models = dict.fromkeys(model for ranked in material.rankings for model in ranked.ranking.models)
    others = [name for name in models if name not in {member.name for member in members}]
    rows = [_row(member, material) for member in members]
    rows += [[Cell(name), *[MISSING] * 5, _metrics(name, material), MISSING] for name in others]
    return Table("Seconds of wall time on the machine of each run", COLUMNS, rows)


def _row(member: Member, material: Material) -> list[Cell]:
    card = member.card
    seconds, epochs = dig(card, "seconds"), dig(card, "epochs")
    about = {"command": commands.training(card), "date": dig(card, "date")}
    rate, waiting = (_mean(member, key) for key in ("images_per_second", "waiting"))
    per_epoch = seconds / epochs if is_number(seconds) and is_number(epochs) and epochs else None
    from_file = provenance(quantity="mean over the epochs", read_from=member.folder / "metrics.csv", **about)
    dropped = dig(card, "unreadable")
    listed = provenance(note="listed with the entry", data=dig(card, "data", "source"), **about)
    return [
        Cell(member.name),
        of_seconds(seconds, provenance(quantity=f"wall time of {epochs} epochs", **about)),
        of_seconds(per_epoch, provenance(quantity=f"{seconds} s over {epochs} epochs", **about)),
        of_number(rate, "{:,.0f}", from_file),
        of_number(waiting, "{:.1f} %", from_file, scale=100),
        _evaluation(member),
        _metrics(member.name, material),
        of_number(len(dropped) if isinstance(dropped, list) else None, "{:,}", listed),
    ]


def _mean(member: Member, key: str) -> float | None:
    values = [row[key] for row in member.curves if key in row]
    return float(np.mean(values)) if values else None


def _evaluation(member: Member) -> Cell:
    if not member.results:
        return MISSING
    each = ", ".join(f"{result.protocol} on {result.data} {result.seconds:.2f}" for result in member.results)
    return of_seconds(
        sum(result.seconds for result in member.results), provenance(seconds=each, date=member.results[-1].date)
    )


def _metrics(name: str, material: Material) -> Cell:
    spent = {}
    for ranked in material.rankings:
        if name in ranked.ranking.models:
            seconds = ranked.ranking.seconds[ranked.ranking.models.index(name)]
            spent[ranked.ranking.data] = float(np.nansum(seconds))
    if not spent:
        return MISSING
    each = ", ".join(f"{data} {seconds:.2f}" for data, seconds in spent.items())
    return of_seconds(sum(spent.values()), provenance(seconds=each, note="shared work counts for the first metric"))
