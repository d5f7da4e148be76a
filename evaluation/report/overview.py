"""The figure of all entries: their curves on shared axes, embeddings and views side by side, chosen by ticks."""

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.report.cells import dig, is_number
from evaluation.report.entries import place_of
from evaluation.report.overlays import Panel, panels
from evaluation.report.pictures import Picture, picture
from evaluation.report.quick import neighbours
from evaluation.report.reading import Material, Member

FIRST = 8  # entries that are ticked when the page is opened
COLOURS, DASHES = 8, 5  # of lines, see page.css; together they tell forty entries apart


@dataclass(frozen=True)
class Chosen:
    """An entry in the figure. number: in the zoo, from 1. place: id of its section. style: classes of its line.

    line: its accuracies in words.
    """

    number: int
    name: str
    place: str
    folder: str
    style: str
    ticked: bool
    line: str
    embedding: Picture | None
    views: Picture | None


@dataclass(frozen=True)
class Overview:
    """rules: of the style sheet; they hide what is not ticked, also where scripts are off."""

    panels: list[Panel]
    entries: list[Chosen]
    rules: str

    @property
    def ticked(self) -> int:
        return sum(entry.ticked for entry in self.entries)


def overview(material: Material) -> Overview:
    """Make the figure: entries by quick k-NN, the best first, of which up to eight are ticked when it is opened."""
    order = _by_accuracy(material.members)
    entries = [_chosen(material.members[number - 1], number, rank) for rank, number in enumerate(order)]
    drawn = panels(material.members)
    pairs = [(f"show-{entry.number}", f"e{entry.number}") for entry in entries]
    pairs += [(f"of-{panel.quantity.key}", f"q-{panel.quantity.key}") for panel in drawn]
    pairs += [("of-embedding", "q-embedding"), ("of-views", "q-views")]
    rules = [f"#all:has(#{tick}:not(:checked)) .{shown} {{ display: none; }}" for tick, shown in pairs]
    return Overview(drawn, entries, "\n".join(rules))


def _by_accuracy(members: Sequence[Member]) -> list[int]:
    """Return the numbers of the entries, the best first; those without accuracies last, as they stand."""
    accuracies = [dig(member.card, "after", "knn") for member in members]
    order = sorted(range(len(members)), key=lambda k: -accuracies[k] if is_number(accuracies[k]) else 1)
    return [k + 1 for k in order]


def _chosen(member: Member, number: int, rank: int) -> Chosen:
    style = f"c{rank % COLOURS} d{rank // COLOURS % DASHES}"
    shown = f"t-SNE of the features of {member.name}, coloured by class where there are labels. "
    embedding = picture(
        member.folder / "embedding.png",
        f"{shown}Its distances and areas have no meaning; use the accuracies beside it.",
    )
    views = picture(member.folder / "views.png", f"Training images of {member.name} beside their views.")
    folder = str(member.folder)
    return Chosen(number, member.name, place_of(number), folder, style, rank < FIRST, _line(member), embedding, views)


def _line(member: Member) -> str:
    """Return the quick accuracies in words."""
    names = {"knn": f"{neighbours(member.card) or 'k'}-NN", "probe": "quick probe"}
    known = {name: dig(member.card, "after", key) for key, name in names.items()}
    said = [f"{name} {100 * value:.1f} %" for name, value in known.items() if is_number(value)]
    seen = ["over images that were trained on too"] if said and dig(member.card, "data", "held_out") is False else []
    return ", ".join([*said, *seen])
