"""A sheet of queries with the first answers of each, as a PNG."""

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


def draw_answers(shown: Sequence[Shown], queries: Split, searched: Split, title: str, path: Path) -> None:
    """Draw a line for each query: itself, and its first answers, right ones in green and wrong ones in red."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(INCHES * (FIRST + 1), (INCHES + 0.3) * len(shown) + 0.4), layout="constrained")
    axes = figure.subplots(len(shown), FIRST + 1, squeeze=False)
    pictures = {id(split): small(split.images, SIDE) for split in (queries, searched)}

    def draw(axis, split: Split, row: int, kind: str, words: str = "") -> None:
        axis.imshow(thumbnail(pictures[id(split)], row, SIDE))
        axis.set_title(f"{MARKS[kind]}{words}", fontsize=8, color=COLOURS[kind], pad=2)
        axis.set_xlabel(shorten(str(split.ids[row]), LETTERS), fontsize=6.5, labelpad=2, parse_math=False)
        axis.spines[:].set(color=COLOURS[kind], linewidth=2)

    for line, row in zip(shown, axes, strict=True):
        for axis in row:
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(True)
        draw(row[0], queries, line.query, "query", f" (AP {100 * line.score:.0f} %)")
        for axis, answer, right in zip(row[1:], line.rows, line.right, strict=False):
            draw(axis, searched, int(answer), "right" if right else "wrong")
        for axis in row[1 + len(line.rows) :]:
            axis.set_visible(False)
    write_title(figure, title)
    save_figure(figure, path)


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
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_answers(shown, asking.split, searched.split, f"{images.model}: first answers in {images.data}", path)
    runtime.say(f"picture: {path.name}")
