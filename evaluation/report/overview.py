"""The entries side by side: their curves on shared axes, embeddings and views, chosen by ticks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evaluation.report.cells import dig, is_number
from evaluation.report.charts import DOTS, Axis, axis_of, path_of
from evaluation.report.entries import describe_images, neighbours, place_of
from evaluation.report.reading import Material, Member
from sslkit.files.pages import picture_source
from sslkit.files.reading import regular

FIRST = 8  # entries that are ticked when the page is opened
COLOURS, DASHES = 8, 5  # of lines, see page.css; together they tell forty entries apart
WIDTH, HEIGHT = 600, 260  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 60, 14, 12, 44  # margins
MOST_POINTS = 120  # of a line
DECADES = 30  # a positive quantity whose values differ by more than this factor has a logarithmic axis
WIDEST = 720  # pixels of a picture
QUALITY = 60  # of a picture as WebP
MOST_LETTERS = 1_000_000  # of all pictures: a page of forty entries stays under 2 MB


@dataclass(frozen=True)
class Quantity:
    """A column of metrics.csv. shown: in the panels that are ticked when the page is opened."""

    key: str
    title: str
    scale: float = 1
    shown: bool = True
    note: str = ""


QUANTITIES = (
    Quantity("knn", "quick k-NN during training, %", scale=100),
    Quantity("probe", "online probe during training, %", scale=100),
    Quantity("loss", "loss", shown=False, note="Losses of different methods cannot be compared."),
    Quantity("rankme", "rank of z", shown=False, note="Of the embeddings in training, not of the backbone's features."),
)


@dataclass(frozen=True)
class Curve:
    """One entry's line. number: of the entry, from 1. dots: (x, y) where there are few."""

    number: int
    name: str
    path: str
    dots: list[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """width, height: of the drawing."""

    quantity: Quantity
    alt: str
    x: Axis
    y: Axis
    curves: list[Curve]
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True)
class Picture:
    """source: a data address. alt: description in words. width, height: pixels."""

    source: str
    alt: str
    width: int
    height: int


@dataclass(frozen=True)
class Chosen:
    """An entry in the figure. number: in the zoo, from 1. anchor: id of its section. style: classes of its line.

    line: its accuracies in words. left_out: pictures that are not on the page to keep it small.
    """

    number: int
    name: str
    anchor: str
    folder: str
    style: str
    ticked: bool
    line: str
    embedding: Picture | None
    views: Picture | None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Overview:
    """rules: of the style sheet; they hide what is not ticked, also where scripts are off."""

    panels: list[Panel]
    entries: list[Chosen]
    rules: str

    @property
    def n_ticked(self) -> int:
        return sum(entry.ticked for entry in self.entries)


def overview(material: Material) -> Overview:
    """Make the figure: entries by quick k-NN, the best first, of which up to eight are ticked when it is opened.

    Pictures of the first ones are on the page, up to `MOST_LETTERS`; the others are named by their files.
    """
    order = sorted(enumerate(material.members, 1), key=_by_accuracy)
    entries, letters = [], 0
    for rank, (number, member) in enumerate(order):
        entry = _chosen(member, number, rank, MOST_LETTERS - letters)
        letters += sum(len(image.source) for image in (entry.embedding, entry.views) if image)
        entries.append(entry)
    drawn = panels(material.members)
    pairs = [(f"show-{entry.number}", f"e{entry.number}") for entry in entries]
    pairs += [(f"of-{panel.quantity.key}", f"q-{panel.quantity.key}") for panel in drawn]
    pairs += [("of-embedding", "q-embedding"), ("of-views", "q-views")]
    rules = [f"#all:has(#{tick}:not(:checked)) .{shown} {{ display: none; }}" for tick, shown in pairs]
    return Overview(drawn, entries, "\n".join(rules))


def _by_accuracy(numbered: tuple[int, Member]) -> float:
    """Return a sort key by which the best entry is first, and entries without an accuracy are last, as they stand."""
    accuracy = dig(numbered[1].card, "after", "knn")
    return -accuracy if is_number(accuracy) else 1


def _chosen(member: Member, number: int, rank: int, letters: int) -> Chosen:
    """Return an entry with its pictures if they have at most so many letters together."""
    style = f"c{rank % COLOURS} d{rank // COLOURS % DASHES}"
    alt = f"t-SNE of the features of {member.name}, coloured by class where there are labels. "
    alt += "Its distances and areas have no meaning; use the accuracies beside it."
    alts = {"embedding": alt, "views": f"Training images of {member.name} beside their views."}
    paths = {name: member.folder / f"{name}.png" for name in alts}
    drawn = {name: picture(paths[name], text) if letters > 0 else None for name, text in alts.items()}
    fits = letters > 0 and sum(len(image.source) for image in drawn.values() if image) <= letters
    left_out = () if fits else tuple(str(path) for path in paths.values() if path.is_file())
    drawn = drawn if fits else dict.fromkeys(drawn)
    about = (number, member.name, place_of(number), str(member.folder), style, rank < FIRST, _line(member))
    return Chosen(*about, drawn["embedding"], drawn["views"], left_out)


def _line(member: Member) -> str:
    """Return the accuracies during training in words, and what they were made on."""
    names = {"knn": f"quick {neighbours(member.card) or 'k'}-NN", "probe": "quick probe"}
    accuracies = {name: dig(member.card, "after", key) for key, name in names.items()}
    parts = [f"{name} {100 * value:.1f} %" for name, value in accuracies.items() if is_number(value)]
    return f"During training: {', '.join(parts)} {describe_images(member.card)}" if parts else ""


def panels(members: Sequence[Member]) -> list[Panel]:
    """Make a panel for each quantity that an entry has recorded; at least one of them is shown."""
    recorded = [panel for quantity in QUANTITIES if (panel := _panel(quantity, members))]
    if recorded and not any(panel.quantity.shown for panel in recorded):
        recorded[0] = replace(recorded[0], quantity=replace(recorded[0].quantity, shown=True))
    return recorded


def _panel(quantity: Quantity, members: Sequence[Member]) -> Panel | None:
    series = {
        number: points for number, member in enumerate(members, 1) if (points := _points(member.curves, quantity))
    }
    if not series:
        return None
    x = axis_of([0, *(epoch for points in series.values() for epoch, _ in points)], LEFT, WIDTH - RIGHT, whole=True)
    values = [value for points in series.values() for _, value in points]
    logarithmic = min(values) > 0 and max(values) > DECADES * min(values)
    y = _logarithmic(values) if logarithmic else axis_of(values, HEIGHT - BOTTOM, TOP)
    curves = []
    for number, points in series.items():
        drawn = [(x(epoch), y(math.log10(value) if logarithmic else value)) for epoch, value in points]
        name = f"{members[number - 1].name}: {points[-1][1]:.4g} at the end"
        curves.append(Curve(number, name, path_of(drawn), drawn if len(drawn) <= DOTS else []))
    alt = f"{quantity.title} over the epochs of {len(series)} entries, between {min(values):.3g} and {max(values):.3g}."
    return Panel(quantity, alt, x, y, curves)


def _points(rows: Sequence[Mapping[str, float]], quantity: Quantity) -> list[tuple[float, float]]:
    """Return (epoch, value), the epoch with its fraction, of at most 120 rows at even distances."""
    ends = {row["epoch"]: row["step"] for row in rows if "epoch" in row and "step" in row}
    if not ends:
        return []
    epoch_steps = max(ends.values()) / max(ends) or 1
    points = [
        (row["step"] / epoch_steps, quantity.scale * row[quantity.key])
        for row in rows
        if quantity.key in row and "step" in row and math.isfinite(row[quantity.key])
    ]
    if len(points) <= MOST_POINTS:
        return points
    return [points[round(k * (len(points) - 1) / (MOST_POINTS - 1))] for k in range(MOST_POINTS)]


def _logarithmic(values: Sequence[float]) -> Axis:
    """Make a logarithmic axis; it takes logarithms to base 10, its labels are the values."""
    low, high = math.log10(min(values)), math.log10(max(values))
    axis = Axis(low, high, HEIGHT - BOTTOM, TOP, [])
    marks = [digit * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for digit in (1, 3)]
    inside = [mark for mark in marks if low <= math.log10(mark) <= high]
    return replace(axis, ticks=[(axis(math.log10(mark)), f"{mark:g}") for mark in inside])


def picture(path: Path, alt: str) -> Picture | None:
    """Read a picture as WebP of at most 720 pixels width; None if it is missing or unreadable."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(regular(path)) as image:
            image = image.convert("RGB")
    except (OSError, UnidentifiedImageError):
        return None
    if image.width > WIDEST:
        image = image.resize((WIDEST, round(image.height * WIDEST / image.width)), Image.Resampling.LANCZOS)
    return Picture(picture_source(image, QUALITY), alt, image.width, image.height)
