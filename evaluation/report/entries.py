"""The entries of the zoo, one by one: curves, the numbers of their cards, and where everything comes from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluation.report import commands
from evaluation.report.cells import (
    MISSING,
    Cell,
    Column,
    Table,
    dig,
    is_number,
    of_bytes,
    of_estimate,
    of_number,
    of_share,
    of_text,
    provenance,
)
from evaluation.report.charts import LineChart, curves
from evaluation.report.gains import gains_of
from evaluation.report.reading import Material, Member
from sslkit.data.items import item_of
from sslkit.numerics.wilson import units_of
from sslkit.terminal.say import counted

MOST_PATHS = 500  # unreadable images that are listed; all of them are in the card
INTERVAL = "95 % Wilson, over images"
QUICK = ("knn", "probe")  # accuracies that are made during training


@dataclass(frozen=True)
class Section:
    """One entry on the page. id: of its place. quick: initial weights beside the trained ones.

    gains: the entry beside its start. unreadable: paths of dropped images.
    """

    id: str
    member: Member
    line: str
    charts: list[LineChart]
    quick: Table | None
    gains: Table | None
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


def _section(member: Member, anchor: str) -> Section:
    card = member.card
    paths = dig(card, "unreadable")
    paths = [str(path) for path in paths] if isinstance(paths, list) else None
    return Section(
        anchor,
        member,
        _line(card),
        curves(member.curves),
        _quick(member),
        gains_of(member),
        _facts(member),
        (paths or [])[:MOST_PATHS],
        None if paths is None else len(paths),
        commands.training(card),
        str(dig(card, "load") or ""),
    )


def _line(card: Mapping[str, Any]) -> str:
    images, source = dig(card, "data", "images"), dig(card, "data", "source")
    epochs, seed = dig(card, "epochs"), dig(card, "seed")
    parts = [
        dig(card, "method"),
        dig(card, "backbone", "name"),
        f"{images:,} {unit(card)} of {source}" if isinstance(images, int) else source,
        counted(epochs, "epoch") if is_number(epochs) else None,
        f"seed {seed}" if seed is not None else None,
    ]
    return ", ".join(str(fact) for fact in parts if fact)


def _quick(member: Member) -> Table | None:
    k = neighbours(member.card)
    names = {"knn": f"quick {k or 'k'}-NN accuracy", "probe": "quick probe accuracy"}
    names |= {"inter": "distance of the classes", "intra": "variance within a class"}
    measured = [key for key in names if dig(member.card, "after", key) is not None]
    if not measured:
        return None
    first = "before" if dig(member.card, "init") else "random weights"
    columns = [Column("measure"), Column(first, number=True), Column("trained", number=True)]
    rows = [[Cell(names[key]), *(quick_cell(member, stage, key) for stage in ("before", "after"))] for key in measured]
    return Table(f"{member.name}: measured during training, {describe_images(member.card)}", columns, rows)


def _facts(member: Member) -> list[tuple[str, Cell]]:
    card, weights = member.card, member.weights
    image_size, versions, notes = dig(card, "backbone", "image_size"), dig(card, "versions"), dig(card, "notes")
    versions = versions.items() if isinstance(versions, Mapping) else ()
    notes = "; ".join(map(str, notes)) if isinstance(notes, list) else notes or "none in the card"
    return [
        ("folder", Cell(str(member.folder))),
        ("weights, sha256", of_text(weights and weights.digest)),
        ("weights, size", MISSING if weights is None else of_bytes(weights.bytes, size(member).how)),
        ("data, digest", of_text(dig(card, "data", "digest"))),
        ("data, licence", of_text(dig(card, "data", "licence"))),
        ("images", of_text(f"{image_size} px, channels: {dig(card, 'backbone', 'in_chans')}" if image_size else None)),
        ("stem", of_text(dig(card, "backbone", "stem"))),
        ("commit", of_text(dig(card, "commit"))),
        ("versions", of_text(", ".join(f"{name} {version}" for name, version in versions))),
        ("date", of_text(dig(card, "date"))),
        ("notes", of_text(notes)),
    ]


def neighbours(card: Mapping[str, Any]) -> int | None:
    """Return k of the quick k-NN vote."""
    k = dig(card, "config", "eval", "k")
    return k if isinstance(k, int) else None


def describe_images(card: Mapping[str, Any]) -> str:
    """Say on what an entry was measured during training: "on 359 held-out images of digits"."""
    n, source = dig(card, "after", "n"), dig(card, "data", "source")
    kind = {True: "held-out ", False: "training "}.get(dig(card, "data", "held_out"), "")
    many = f"{n:,.0f} " if is_number(n) else ""
    return f"on {many}{kind}{unit(card)}" + (f" of {source}" if source else "")


def quick_cell(member: Member, stage: str, key: str) -> Cell:
    """Return a number of the card, made during training. stage: "before" or "after". key: "knn", "probe", ..."""
    card = member.card
    value, n = dig(card, stage, key), dig(card, stage, "n")
    weights = "after training" if stage == "after" else f"{dig(card, 'init', 'source') or 'random'}, before training"
    protocol, interval = {
        "knn": (f"quick {neighbours(card) or 'k'}-NN: vote of the nearest neighbours by cosine", INTERVAL),
        "probe": ("quick probe: a linear classifier on frozen features", INTERVAL),
        "inter": ("mean distance of the class means", ""),
        "intra": ("mean variance within a class, about its mean", ""),
    }[key]
    how = origin(card, protocol=protocol, weights=weights, n=_images(n), interval=interval)
    return (
        of_estimate(of_share(value, units_of(dig(card, stage) or {})), how)
        if key in QUICK
        else of_number(value, "{:.3f}", how)
    )


def origin(card: Mapping[str, Any], **facts: Any) -> str:
    """Return the lines on the origin of a number of a card. facts: more of them; "data" in the place of the usual."""
    kind = {True: "held-out", False: "training"}.get(dig(card, "data", "held_out"))
    data = f"{kind} {unit(card)} of " if kind else ""
    return provenance(
        **{"data": data + str(dig(card, "data", "source") or "unnamed data"), **facts},
        seed=dig(card, "seed"),
        command=commands.training(card),
        date=dig(card, "date"),
    )


def unit(card: Mapping[str, Any]) -> str:
    """Return the unit of an entry's data."""
    return item_of(dig(card, "backbone", "frames")).rows


def rankme(card: Mapping[str, Any]) -> Cell:
    how = origin(
        card,
        quantity="RankMe of the backbone's features, not that of z in the curves",
        data=f"clean training {unit(card)} of {dig(card, 'data', 'source')}",
        n=_images(dig(card, "features", "images")),
        interval="none: one number of one matrix",
    )
    return of_number(dig(card, "diagnostics", "rankme"), "{:.1f}", how)


def _images(count: Any) -> str:
    return f"{count:,.0f} images" if is_number(count) else ""


def size(member: Member) -> Cell:
    """Make a cell of the number of trained parameters."""
    weights = member.weights
    if weights is None:
        return MISSING
    how = provenance(
        quantity="trained parameters of the backbone, without the statistics of batch normalisation",
        file=f"{weights.bytes:,} bytes",
        read_from=member.folder / "backbone.safetensors",
    )
    n = weights.parameters
    return Cell(f"{n / 1e6:.2f} M" if n >= 5000 else f"{n:,}", how, n)
