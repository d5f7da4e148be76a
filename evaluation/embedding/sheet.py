"""A contact sheet of near-duplicates: pairs side by side, with their names and similarity."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evaluation.embedding.near_duplicates import Duplicates, Source, named
from evaluation.embedding.thumbnails import shortened, thumbnails
from sslkit.numerics.figures import save_figure

SHOWN = 24  # pairs
COLUMNS = 3
SIDE = 192  # pixels of an image
LETTERS = 26  # of a name below an image
WIDTH, HEIGHT = 4.3, 2.45  # inches of a pair


def contact_sheet(found: Duplicates, sources: Sequence[Source], path: Path, *, title: str = "") -> int:
    """Draw at most 24 pairs as a PNG, from the most to the least similar, at even distances in the list.

    Returns the number of pairs drawn; draws nothing without a pair. Raises UserError if the file cannot be written.
    """
    from matplotlib.figure import Figure

    if not len(found):
        return 0
    chosen = np.unique(np.linspace(0, len(found) - 1, min(SHOWN, len(found))).round().astype(int))
    pictures, names = _pictures(found, chosen, sources), named(sources)
    columns = min(COLUMNS, len(chosen))
    rows = -(-len(chosen) // columns)
    high = HEIGHT * rows + 0.9
    figure = Figure(figsize=(WIDTH * columns, high))
    grid = figure.add_gridspec(
        rows, columns, left=0.01, right=0.99, bottom=0.45 / high, top=1 - 0.75 / high, wspace=0.06, hspace=0.3
    )
    for cell, pair in zip(grid, chosen, strict=False):
        left, right = (figure.add_subplot(part) for part in cell.subgridspec(1, 2, wspace=0.04))
        for axis, row in zip((left, right), found.rows[pair], strict=True):
            _draw(axis, pictures[row], names[row], len(sources) > 1)
        kind = "same content" if found.exact[pair] else f"similarity {found.similarity[pair]:.3f}"
        left.set_title(f"{kind}, group {found.group[pair]}", loc="left", fontsize=9)
    shown = "" if len(chosen) == len(found) else f", {len(chosen)} shown from the most to the least similar"
    said = f"{title}{len(found):,} pair{'s' * (len(found) > 1)}{shown}"
    figure.suptitle(said, fontsize=11, y=1 - 0.1 / figure.get_figheight(), va="top")
    save_figure(figure, path)
    return len(chosen)


def _pictures(found: Duplicates, chosen: np.ndarray, sources: Sequence[Source]) -> dict[int, np.ndarray]:
    wanted, start, pictures = np.unique(found.rows[chosen]), 0, {}
    for one in sources:
        stop = start + len(one.embedding)
        rows = wanted[(wanted >= start) & (wanted < stop)]
        drawn = thumbnails(one.parts, one.embedding.paths, rows - start, SIDE)
        pictures |= dict(zip(rows.tolist(), drawn, strict=True))
        start = stop
    return pictures


def _draw(axis, picture: np.ndarray, name: tuple[str, str], several: bool) -> None:
    axis.imshow(picture)
    source, path = name
    below = f"{shortened(source, LETTERS)}\n{shortened(path, LETTERS)}" if several else shortened(path, LETTERS)
    axis.set_xlabel(below, fontsize=7.5, labelpad=2, parse_math=False)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_color("#bbbbbb")
