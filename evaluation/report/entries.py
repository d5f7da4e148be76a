"""The entries of the zoo, one by one: curves, quick accuracies, and where everything comes from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluation.report import commands
from evaluation.report.cells import MISSING, Cell, Column, Table, counted, dig, of_bytes, of_text
from evaluation.report.charts import LineChart, curves
from evaluation.report.quick import neighbours, quick_judge, size, unit
from evaluation.report.reading import Material, Member

MOST_PATHS = 500  # unreadable images that are listed; all of them are in the card


@dataclass(frozen=True)
class Section:
    """One entry on the page. id: of its place. quick: initial weights beside the trained ones.

    unreadable: paths of dropped images.
    """

    id: str
    member: Member
    line: str
    charts: list[LineChart]
    quick: Table | None
    facts: list[tuple[str, Cell]]
    unreadable: list[str]
    dropped: int | None
    command: str
    load: str


def sections(material: Material) -> list[Section]:
    return [_section(member, place_of(number)) for number, member in enumerate(material.members, 1)]


def place_of(number: int) -> str:
    """Return the id of an entry's place on the page, counted from 1."""
    return f"entry-{number}"


def _section(member: Member, place: str) -> Section:
    card = member.card
    paths = dig(card, "unreadable")
    paths = [str(path) for path in paths] if isinstance(paths, list) else None
    return Section(
        place,
        member,
        _line(card),
        curves(member.curves),
        _quick(member),
        _facts(member),
        (paths or [])[:MOST_PATHS],
        None if paths is None else len(paths),
        commands.training(card),
        str(dig(card, "load") or ""),
    )


def _line(card: Mapping[str, Any]) -> str:
    parts = [
        dig(card, "method"),
        f"{dig(card, 'backbone', 'name')}" if dig(card, "backbone", "name") else None,
        f"{dig(card, 'data', 'images'):,} {unit(card)} of {dig(card, 'data', 'source')}"
        if isinstance(dig(card, "data", "images"), int)
        else dig(card, "data", "source"),
        counted(dig(card, "epochs"), "epoch"),
        f"seed {dig(card, 'seed')}" if dig(card, "seed") is not None else None,
    ]
    return ", ".join(str(part) for part in parts if part)


def _quick(member: Member) -> Table | None:
    k = neighbours(member.card)
    names = {"knn": f"{k}-NN accuracy" if k else "k-NN accuracy", "probe": "quick probe accuracy"}
    names["inter"] = "distance of the classes"
    names["intra"] = "variance within a class"
    known = [key for key in names if dig(member.card, "after", key) is not None]
    if not known:
        return None
    first = "before" if dig(member.card, "init") else "random weights"
    columns = [Column("judge"), Column(first, number=True), Column("trained", number=True)]
    rows = [[Cell(names[key]), *(quick_judge(member, part, key) for part in ("before", "after"))] for key in known]
    return Table(f"{member.name}: evaluation at the end of training", columns, rows)


def _facts(member: Member) -> list[tuple[str, Cell]]:
    card, weights = member.card, member.weights
    image_size = dig(card, "backbone", "image_size")
    return [
        ("folder", Cell(str(member.folder))),
        ("weights, sha256", of_text(weights and weights.digest)),
        ("weights, size", MISSING if weights is None else of_bytes(weights.bytes, size(member).how)),
        ("data, digest", of_text(dig(card, "data", "digest"))),
        ("data, licence", of_text(dig(card, "data", "licence"))),
        ("images", of_text(f"{image_size} px, channels: {dig(card, 'backbone', 'in_chans')}" if image_size else None)),
        ("stem", of_text(dig(card, "backbone", "stem"))),
        ("commit", of_text(dig(card, "commit"))),
        ("versions", of_text(_listed(dig(card, "versions")))),
        ("date", of_text(dig(card, "date"))),
        ("notes", of_text(_notes(dig(card, "notes")))),
    ]


def _listed(versions: Any) -> str:
    return ", ".join(f"{name} {one}" for name, one in versions.items()) if isinstance(versions, Mapping) else ""


def _notes(notes: Any) -> str:
    return "; ".join(map(str, notes)) if isinstance(notes, list) else str(notes or "none in the card")
