"""Sheets of images in lines, as PNGs: of queries with the first answers of each, and whatever else has lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.datasets.base import Split
from evaluation.features.table import Features
from evaluation.learners.rankings import Answers, first_answers
from sslkit.data.thumbnails import shorten, small, thumbnail
from sslkit.files.writing import name_of
from sslkit.numerics.figures import save_figure, write_title
from sslkit.runtime.context import Runtime
from sslkit.runtime.distributed import rank

WORST, DRAWN = "worst", 8  # the word for the queries of lowest average precision, and how many of them are drawn
FIRST = 5  # answers that are drawn
SIDE, INCHES, LETTERS = 128, 1.35, 18  # pixels and inches of a picture, and letters of a name
COLOURS = {"query": "#555555", "right": "#1a7f4b", "wrong": "#c0392b"}
MARKS = {"query": "query", "right": "✓", "wrong": "✗"}


@dataclass(frozen=True)
class Part:
    """Features, and the split that they are of, unreadable images included."""

    features: Features
    split: Split


@dataclass(frozen=True)
class Shown:
    """A query and its first answers. query, rows: in their splits. right: (k,) bool. score: of the query."""

    query: int
    rows: np.ndarray
    right: np.ndarray
    score: float


@dataclass(frozen=True)
class Cell:
    """An image of a sheet: a row of a split. kind: of `COLOURS`. words: above it, behind the mark of its kind."""

    split: Split
    row: int
    kind: str
    words: str = ""


def draw_sheet(lines: Sequence[Sequence[Cell]], title: str, path: Path) -> None:
    """Draw lines of images, each with its name below."""
    from matplotlib.figure import Figure

    columns = max(map(len, lines))
    figure = Figure(figsize=(INCHES * columns, (INCHES + 0.3) * len(lines) + 0.4), layout="constrained")
    splits = {id(cell.split): cell.split for line in lines for cell in line}
    pictures = {key: small(split.images, SIDE) for key, split in splits.items()}
    for line, row in zip(lines, figure.subplots(len(lines), columns, squeeze=False), strict=True):
        for cell, axis in zip(line, row, strict=False):
            axis.set(xticks=[], yticks=[])
            axis.imshow(thumbnail(pictures[id(cell.split)], cell.row, SIDE))
            axis.set_title(f"{MARKS[cell.kind]}{cell.words}", fontsize=8, color=COLOURS[cell.kind], pad=2)
            axis.title.set_parse_math(False)
            axis.set_xlabel(shorten(str(cell.split.ids[cell.row]), LETTERS), fontsize=6.5, labelpad=2, parse_math=False)
            axis.spines[:].set(visible=True, color=COLOURS[cell.kind], linewidth=2)
        for axis in row[len(line) :]:
            axis.set_visible(False)
    write_title(figure, title)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_figure(figure, path)


def _line_of(shown: Shown, queries: Split, searched: Split) -> list[Cell]:
    """A query, and its first answers, right ones in green and wrong ones in red."""
    answers = zip(shown.rows, shown.right, strict=True)
    return [
        Cell(queries, shown.query, "query", f" (AP {100 * shown.score:.0f} %)"),
        *(Cell(searched, int(row), "right" if right else "wrong") for row, right in answers),
    ]


def draw_chosen(
    names: Sequence[str], asking: Part, searched: Part, score: np.ndarray, answers: Answers, runtime: Runtime
) -> None:
    """Draw the named queries with their first answers as retrieval-DATA.png in the runtime's folder.

    names: of queries, or WORST. score: (Q,) of each query, nan without an answer. answers: of a query.
    """
    queries, images = asking.features, searched.features
    if not names or runtime.out is None or rank() != 0:
        return
    row_of = {str(name): row for row, name in enumerate(queries.ids)}
    chosen = [row_of[name] for name in names if name in row_of]
    if WORST in names:
        chosen += np.argsort(score, kind="stable")[: min(DRAWN, int((~np.isnan(score)).sum()))].tolist()
    at = [{str(name): row for row, name in enumerate(side.split.ids)} for side in (asking, searched)]
    shown = []
    for query in dict.fromkeys(chosen):
        right, left_out = answers(query)
        first = first_answers(queries.x[query][None], images.x, left_out, FIRST)
        rows = np.array([at[1][str(name)] for name in images.ids[first]], int)
        shown.append(Shown(at[0][str(queries.ids[query])], rows, np.isin(first, right), float(score[query])))
    path = Path(runtime.out) / f"retrieval-{name_of(images.data)}.png"
    lines = [_line_of(each, asking.split, searched.split) for each in shown]
    draw_sheet(lines, f"{images.model}: first answers in {images.data}", path)
    runtime.say(f"picture: {path.name}")
