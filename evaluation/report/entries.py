"""The zoo as a table, and the card of each of its entries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluation.report import commands
from evaluation.report.cells import (
    MISSING,
    Cell,
    Column,
    Table,
    day,
    dig,
    is_number,
    made,
    of_bytes,
    of_estimate,
    of_number,
    of_share,
    of_text,
)
from evaluation.report.charts import LineChart, curves
from evaluation.report.pictures import Picture, picture
from evaluation.report.reading import Material, Member

MOST_PATHS = 500  # unreadable images that are listed; all of them are in the card
INTERVAL = "95 % Wilson, over images"
COLUMNS = [
    Column("entry"),
    Column("method"),
    Column("plugin"),
    Column("data"),
    Column("epochs", "passes over the training images", number=True),
    Column("kNN", "nearest-neighbour accuracy at the end of training, on held-out images", number=True),
    Column("linear", "accuracy of the quick linear probe at the end of training, on held-out images", number=True),
    Column("RankMe", "effective rank of the features: higher means less collapsed", number=True),
    Column("size", "trained parameters of the backbone", number=True),
    Column("date"),
]


@dataclass(frozen=True)
class Section:
    """One entry on the page. quick: initial weights beside the trained ones. unreadable: paths of dropped images."""

    member: Member
    line: str
    charts: list[LineChart]
    embedding: Picture | None
    quick: Table | None
    facts: list[tuple[str, Cell]]
    unreadable: list[str]
    dropped: int | None
    command: str
    load: str


def zoo_table(material: Material) -> Table:
    rows = [_row(member) for member in material.members]
    return Table(f"Entries of {material.zoo}, after training", COLUMNS, rows)


def sections(material: Material) -> list[Section]:
    return [_section(member) for member in material.members]


def quick_judge(member: Member, part: str, key: str) -> Cell:
    """Return a number of the card from the end of training. part: "before" or "after". key: "knn", "probe", ..."""
    card = member.card
    value, n = dig(card, part, key), dig(card, part, "n")
    what, interval = {
        "knn": (f"{dig(card, 'config', 'eval', 'k') or 'k'} nearest neighbours, cosine", INTERVAL),
        "probe": ("linear probe on frozen features", INTERVAL),
        "inter": ("mean distance of the class means", ""),
        "intra": ("mean variance within a class, about its mean", ""),
    }[key]
    how = _how(card, protocol=what, weights=_weights(card, part), n=_images(n), interval=interval)
    return of_estimate(of_share(value, n), how) if key in ("knn", "probe") else of_number(value, "{:.3f}", how)


def _weights(card: Mapping[str, Any], part: str) -> str:
    if part == "after":
        return "after training"
    return f"{dig(card, 'init', 'source') or 'random'}, before training"


def _how(card: Mapping[str, Any], **facts: Any) -> str:
    part = {True: "held-out", False: "training"}.get(dig(card, "data", "held_out"))
    held_out = f"{part} {_unit(card)} of {{}}" if part else "{}"
    return made(
        **{"data": held_out.format(dig(card, "data", "source") or "unnamed data"), **facts},
        seed=dig(card, "seed"),
        command=commands.training(card),
        date=dig(card, "date"),
    )


def _unit(card: Mapping[str, Any]) -> str:
    """Return the unit of an entry's data."""
    return "images" if dig(card, "backbone", "frames") is None else "videos"


def _row(member: Member) -> list[Cell]:
    card, weights = member.card, member.weights
    method, _, plugins = str(dig(card, "method") or "").partition("+")
    images = dig(card, "data", "images")
    images = made(images=images, digest=dig(card, "data", "digest"), licence=dig(card, "data", "licence"))
    data = dig(card, "data", "source")
    return [
        Cell(member.name),
        of_text(method),
        Cell(plugins) if plugins else Cell("none" if method else "–", key="", aside="" if method else "not known"),
        Cell(str(data), images) if data else MISSING,
        of_number(dig(card, "epochs"), "{:g}", _how(card)),
        quick_judge(member, "after", "knn"),
        quick_judge(member, "after", "probe"),
        _rankme(card),
        MISSING if weights is None else Cell(_millions(weights.parameters), _size(member), weights.parameters),
        day(dig(card, "date")),
    ]


def _rankme(card: Mapping[str, Any]) -> Cell:
    images = dig(card, "features", "images")
    how = _how(
        card,
        quantity="RankMe, the effective rank of the backbone's features",
        data=f"clean training {_unit(card)} of {dig(card, 'data', 'source')}",
        n=_images(images),
        interval="none: one number of one matrix",
    )
    return of_number(dig(card, "diagnostics", "rankme"), "{:.1f}", how)


def _images(count: Any) -> str:
    return f"{count:,.0f} images" if is_number(count) else ""


def _millions(parameters: int) -> str:
    return f"{parameters / 1e6:.2f} M" if parameters >= 5000 else f"{parameters:,}"


def _size(member: Member) -> str:
    return made(
        quantity="trained parameters of the backbone, without the statistics of batch normalisation",
        file=f"{member.weights.bytes:,} bytes",
        read_from=member.folder / "backbone.safetensors",
    )


def _section(member: Member) -> Section:
    card = member.card
    paths = dig(card, "unreadable")
    paths = [str(path) for path in paths] if isinstance(paths, list) else None
    return Section(
        member,
        _line(card),
        curves(member.curves),
        picture(
            member.folder / "embedding.png",
            f"t-SNE of the features of {member.name}, coloured by class where there are labels. "
            "Its distances and areas have no meaning; use the accuracies beside it.",
        ),
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
        f"{dig(card, 'data', 'images'):,} {_unit(card)} of {dig(card, 'data', 'source')}"
        if isinstance(dig(card, "data", "images"), int)
        else dig(card, "data", "source"),
        f"{dig(card, 'epochs')} epochs" if dig(card, "epochs") else None,
        f"seed {dig(card, 'seed')}" if dig(card, "seed") is not None else None,
    ]
    return ", ".join(str(part) for part in parts if part)


def _quick(member: Member) -> Table | None:
    names = {"knn": "kNN accuracy", "probe": "linear probe accuracy", "inter": "distance of the classes"}
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
        ("weights, size", MISSING if weights is None else of_bytes(weights.bytes, _size(member))),
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
