"""Near-duplicates: pairs of images with the same content or with similar features, their groups, list and pictures."""

import hashlib
import os
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.datasets._picked import PickedImages
from evaluation.embedding.contents import Content, content_of
from evaluation.embedding.neighbours import nearest
from evaluation.embedding.sources import Part, locate
from evaluation.embedding.table import Embedding
from evaluation.embedding.thumbnails import shorten, thumbnails
from evaluation.features.checks import check_value
from sslkit.data.paged_images import PagedImages
from sslkit.data.sources.folder import FolderImages
from sslkit.errors import UserError
from sslkit.files.writing import write_csv, write_whole
from sslkit.numerics.figures import save_figure
from sslkit.numerics.neighbours import unit_rows
from sslkit.numerics.ties import pair_cosines, search_error
from sslkit.terminal.say import counted

# cosine of efficientnet_lite0 at 224 pixels (recipes/benchmarks/near_duplicates); other networks need another
THRESHOLD = 0.85
MOST = 1_000_000  # pairs: a longer list helps nobody
# neighbours of each image that an approximate search compares: a round number; groups of more lose pairs
CANDIDATES = 32
EQUAL = 1 - 1e-12  # the cosine of equal rows is 1 up to rounding
BLOCK = 2**11  # rows of a block of cosines: one block against another is 16 MB of float32
SHOWN = 24  # pairs of the contact sheet
COLUMNS = 3  # of it
SIDE = 192  # pixels of an image in it
LETTERS = 26  # of a name below an image
WIDTH, HEIGHT = 4.3, 2.45  # inches of a pair


@dataclass(frozen=True)
class Source:
    """One of the compared sets of images. name: in the list. parts: open, see `open_parts`. embedding: theirs."""

    name: str
    parts: Sequence[Part]
    embedding: Embedding


@dataclass(frozen=True, eq=False)
class Duplicates:
    """P pairs of rows, the most similar first; rows count on from one source to the next.

    rows: (P, 2) int64, the smaller first. similarity: (P,) float64 cosines. exact: (P,) bool, the same content.
    group: (P,) int64 from 1: pairs of one group are connected. images: number of images in any pair.
    """

    rows: np.ndarray
    similarity: np.ndarray
    exact: np.ndarray
    group: np.ndarray
    images: int

    def __len__(self) -> int:
        return len(self.rows)


def duplicates(sources: Sequence[Source], threshold: float, search: str) -> Duplicates:
    """Find the near-duplicates within the sources and between them.

    threshold: smallest cosine of a pair. search: "exact" compares all pairs, "hnsw" and "ivf" each image with the 32
    that an approximate search finds. Of images with the same content the first stands for all: each of the others is
    in one pair, with the first.
    Raises UserError for more than a million pairs.
    """
    check_value("threshold", threshold, float, above=0, most=1)
    x = sources[0].embedding.x if len(sources) == 1 else np.concatenate([source.embedding.x for source in sources])
    first = same_content([(source.parts, source.embedding.paths) for source in sources])
    copies = np.flatnonzero(first != np.arange(len(x)))
    distinct = np.flatnonzero(first == np.arange(len(x)))
    near, cosine = similar(x, distinct, threshold, search)
    rows = np.concatenate([np.stack([first[copies], copies], 1), near])
    similarity = np.concatenate([np.ones(len(copies)), cosine])
    exact = np.arange(len(rows)) < len(copies)
    order = np.lexsort((rows[:, 1], rows[:, 0], -similarity, ~exact))
    rows = rows[order]
    return Duplicates(rows, similarity[order], exact[order], _groups(rows, len(x)), len(np.unique(rows)))


def similar(x: np.ndarray, rows: np.ndarray, threshold: float, search: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of the given rows with a cosine of at least `threshold`: (P, 2) rows and (P,) float64 cosines.

    x: (N, D). rows: (n,) rising. Rounding of the float32 search decides no pair: cosines are compared in float64.
    """
    if len(rows) < 2:
        return np.empty((0, 2), np.int64), np.empty(0)
    candidates = _all_pairs(x, rows, threshold) if search == "exact" else _approximate_pairs(x, rows, search)
    near, cosines, total = [np.empty((0, 2), np.int64)], [np.empty(0)], 0
    for pairs in candidates:
        cosine = pair_cosines(x, pairs[:, 0], x, pairs[:, 1])
        is_similar = cosine >= min(threshold, EQUAL)
        total += is_similar.sum()
        if total > MOST:
            raise UserError(
                f"more than {MOST:,} pairs have a similarity of at least threshold={threshold:g}: raise it, "
                "or take another model: one that was not trained finds every image similar"
            )
        near.append(pairs[is_similar])
        cosines.append(cosine[is_similar])
    return np.concatenate(near), np.concatenate(cosines)


def same_content(sources: Sequence[tuple[Sequence[Part], Sequence[str]]]) -> np.ndarray:
    """Return (N,) int64 the first row with the same content: the row itself where no earlier one has it.

    sources: parts and paths of an `Embedding` each; their rows are counted on.
    Files, and images in shards and Hugging Face data sets, are compared by their bytes, and only files of one size are
    read; arrays are compared by their pixels. Raises UserError for a file that has gone.
    """
    first_of: dict[Hashable, int] = {}
    images = [content for parts, paths in sources for content in _contents(parts, paths)]
    sizes = Counter(content.size for content in images if isinstance(content, Content))
    first = np.arange(len(images))
    for row, content in enumerate(images):
        if isinstance(content, Content) and sizes[content.size] == 1:
            continue
        key: Hashable = hashlib.sha256(content.read()).digest() if isinstance(content, Content) else content
        first[row] = first_of.setdefault(key, row)
    return first


def write_duplicates(pairs: Duplicates, sources: Sequence[Source], path: Path) -> None:
    """Write a CSV of the pairs, one a row. Raises UserError if it cannot be written."""
    names = list_rows(sources)
    lines = (
        (group, "exact" if exact else "near", f"{similarity:.4f}", *names[a], *names[b])
        for (a, b), similarity, exact, group in zip(pairs.rows, pairs.similarity, pairs.exact, pairs.group, strict=True)
    )
    write_csv(path, [("group", "kind", "similarity", "data", "first", "other_data", "other"), *lines])


def write_unique(pairs: Duplicates, source: Source, path: Path) -> int:
    """Write the files of a source without the copies of an earlier one, a path a line, relative to the list's folder.

    Returns their number; 0, and no list, for images that are no files.
    """
    images = list(locate(source.parts, source.embedding.paths))
    copies = set(pairs.rows[pairs.exact, 1].tolist())
    if not all(isinstance(opened.split.images, FolderImages) for opened, _ in images):
        return 0
    unique = [opened.split.images.path(at) for row, (opened, at) in enumerate(images) if row not in copies]
    lines = [os.path.relpath(file, path.parent) for file in unique]
    with write_whole(path) as partial:
        partial.write_bytes(b"".join(os.fsencode(line) + b"\n" for line in lines))
    return len(unique)


def contact_sheet(pairs: Duplicates, sources: Sequence[Source], path: Path) -> int:
    """Draw at most 24 pairs as a PNG, from the most to the least similar, at even distances in the list.

    Returns the number of pairs drawn; draws nothing without a pair. Raises UserError if the file cannot be written.
    """
    from matplotlib.figure import Figure

    if not len(pairs):
        return 0
    chosen = np.unique(np.linspace(0, len(pairs) - 1, min(SHOWN, len(pairs))).round().astype(int))
    pictures, names = _pictures(pairs, chosen, sources), list_rows(sources)
    columns = min(COLUMNS, len(chosen))
    rows = -(-len(chosen) // columns)
    high = HEIGHT * rows + 0.9
    figure = Figure(figsize=(WIDTH * columns, high))
    grid = figure.add_gridspec(
        rows, columns, left=0.01, right=0.99, bottom=0.45 / high, top=1 - 0.75 / high, wspace=0.06, hspace=0.3
    )
    for cell, pair in zip(grid, chosen, strict=False):
        left, right = (figure.add_subplot(half) for half in cell.subgridspec(1, 2, wspace=0.04))
        for axis, row in zip((left, right), pairs.rows[pair], strict=True):
            _draw(axis, pictures[row], names[row], len(sources) > 1)
        kind = "same content" if pairs.exact[pair] else f"similarity {pairs.similarity[pair]:.3f}"
        left.set_title(f"{kind}, group {pairs.group[pair]}", loc="left", fontsize=9)
    shown = "" if len(chosen) == len(pairs) else f", {len(chosen)} shown from the most to the least similar"
    figure.suptitle(f"{counted(len(pairs), 'pair')}{shown}", fontsize=11, y=1 - 0.1 / figure.get_figheight(), va="top")
    save_figure(figure, path)
    return len(chosen)


def list_rows(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """Return the source and the path of each row."""
    return [(source.name, str(path)) for source in sources for path in source.embedding.paths]


def _all_pairs(x: np.ndarray, rows: np.ndarray, threshold: float) -> Iterator[np.ndarray]:
    """Yield every pair that may reach the threshold, by blocks of the upper triangle."""
    least = threshold - search_error(x.shape[1])
    for start in range(0, len(rows), BLOCK):
        some = rows[start : start + BLOCK]
        left = unit_rows(x[some], "features", some)
        for other in range(start, len(rows), BLOCK):
            others = rows[other : other + BLOCK]
            cosine = left @ unit_rows(x[others], "features", others).T
            a, b = np.nonzero(cosine >= least)
            pairs = np.stack([some[a], others[b]], 1)
            yield pairs[pairs[:, 0] < pairs[:, 1]]


def _approximate_pairs(x: np.ndarray, rows: np.ndarray, search: str) -> Iterator[np.ndarray]:
    indices = nearest(x[rows], min(CANDIDATES, len(rows) - 1), search).indices
    pairs = np.stack([np.repeat(np.arange(len(rows)), indices.shape[1]), indices.ravel()], 1)
    yield np.unique(np.sort(rows[pairs], axis=1), axis=0)


def _groups(rows: np.ndarray, n: int) -> np.ndarray:
    """Return (P,) the number of each pair's group, from 1 in the order of the list."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = rows.astype(np.int32)  # csgraph counts in 32 bits: given 64, some releases of scipy put all in one group
    graph = coo_array((np.ones(len(rows), bool), (ends[:, 0], ends[:, 1])), shape=(n, n))
    label = connected_components(graph, directed=False)[1][rows[:, 0]]
    labels, first, number = np.unique(label, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number] + 1 if len(labels) else label


def _contents(parts: Sequence[Part], paths: Sequence[str]) -> Iterator[Content | str]:
    """Yield the content of each image; a hash of the pixels of one in an array."""
    for opened, row in locate(parts, paths):
        content = content_of(opened.split.images, row)
        name = str(opened.split.ids[row])
        images = opened.split.images.images if isinstance(opened.split.images, PickedImages) else opened.split.images
        is_page = isinstance(images, PagedImages)  # which has no content of its own; hashes are numbered where equal
        yield content or (name if is_page else name.partition("-")[0])


def _pictures(pairs: Duplicates, chosen: np.ndarray, sources: Sequence[Source]) -> dict[int, np.ndarray]:
    wanted, start, pictures = np.unique(pairs.rows[chosen]), 0, {}
    for source in sources:
        stop = start + len(source.embedding)
        rows = wanted[(wanted >= start) & (wanted < stop)]
        drawn = thumbnails(source.parts, source.embedding.paths, rows - start, SIDE)
        pictures |= dict(zip(rows.tolist(), drawn, strict=True))
        start = stop
    return pictures


def _draw(axis, picture: np.ndarray, name: tuple[str, str], several: bool) -> None:
    axis.imshow(picture)
    source, path = name
    below = f"{shorten(source, LETTERS)}\n{shorten(path, LETTERS)}" if several else shorten(path, LETTERS)
    axis.set_xlabel(below, fontsize=7.5, labelpad=2, parse_math=False)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_color("#bbbbbb")
