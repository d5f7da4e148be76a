"""Near-duplicates: images with the same content or nearly the same, in groups around one of them; list and pictures."""

import hashlib
import os
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.datasets._picked import PickedImages
from evaluation.embedding.contents import Content, content_of
from evaluation.embedding.nearness import by_chance, by_cosine
from evaluation.embedding.sources import Part, locate
from evaluation.embedding.table import Embedding
from evaluation.embedding.thumbnails import thumbnails
from evaluation.features.checks import check_value
from sslkit.data.likeness import count_differences
from sslkit.data.paged_images import PagedImages
from sslkit.data.sources.folder import FolderImages
from sslkit.data.thumbnails import shorten
from sslkit.errors import UserError
from sslkit.files.writing import write_csv, write_whole
from sslkit.numerics.figures import save_figure
from sslkit.numerics.near_copies import group_by_leaders
from sslkit.numerics.ties import pair_cosines
from sslkit.terminal.say import counted

AUTO = "auto"  # threshold: found from the images
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
    """P pairs of rows, an image and the one it is a copy of; rows count on from one source to the next.

    rows: (P, 2) int64, the smaller first. similarity: (P,) float64 cosines of the features. exact: (P,) bool, the same
    content, first; then the most similar. bits: (P,) int64 in which the hashes of the pixels differ; None where
    features alone were compared. group: (P,) int64 from 1: all near-copies of one group are near its first image.
    images: number of images in any pair. rule: how near-copies were told, for people.
    """

    rows: np.ndarray
    similarity: np.ndarray
    exact: np.ndarray
    bits: np.ndarray | None
    group: np.ndarray
    images: int
    rule: str

    def __len__(self) -> int:
        return len(self.rows)


def duplicates(sources: Sequence[Source], threshold: float | str = AUTO) -> Duplicates:
    """Find the images of the sources that are copies or near-copies of an earlier one.

    threshold: smallest cosine of near-copies; "auto": by the pixels and, as far as they can tell, by the features, see
    `evaluation.embedding.nearness.by_chance`.
    Of images with the same content the first stands for all: each of the others is in one pair, with the first. Of
    near-copies, too, the first stands for a group, and all others are near it: no pairs are listed, and no chain joins
    images that are not alike. Time grows with the number of images times the number of groups, memory with the images.
    Raises UserError for a threshold with features that are all zeros, for "auto" with features that were read from a
    file, which has no hashes of the pixels, and for a file that has gone.
    """
    check_value("threshold", threshold, float | str, above=0, most=1, choices=(AUTO,))
    x = sources[0].embedding.x if len(sources) == 1 else np.concatenate([source.embedding.x for source in sources])
    first = same_content([(source.parts, source.embedding.paths) for source in sources])
    every = np.arange(len(x))
    distinct = np.flatnonzero(first == every)
    if threshold == AUTO:
        hashes = _hashes(sources)
        nearness = by_chance(hashes, x, distinct)
    else:
        hashes, nearness = None, by_cosine(x, distinct, float(threshold))
    leader = group_by_leaders(nearness.rows, len(x), nearness.index)
    copies, near = np.flatnonzero(first != every), np.flatnonzero(leader != every)
    rows = np.concatenate([np.stack([first[copies], copies], 1), np.stack([leader[near], near], 1)])
    exact = np.arange(len(rows)) < len(copies)
    similarity = np.where(exact, 1.0, pair_cosines(x, rows[:, 0], x, rows[:, 1]))
    order = np.lexsort((rows[:, 1], rows[:, 0], -similarity, ~exact))
    rows = rows[order]
    bits = None if hashes is None else count_differences(*hashes[rows.T])
    group = _number(leader[rows[:, 0]])
    return Duplicates(rows, similarity[order], exact[order], bits, group, len(np.unique(rows)), nearness.rule)


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
        (group, "exact" if exact else "near", f"{similarity:.4f}", differing, *names[a], *names[b])
        for (a, b), similarity, differing, exact, group in zip(
            pairs.rows,
            pairs.similarity,
            [""] * len(pairs) if pairs.bits is None else pairs.bits,
            pairs.exact,
            pairs.group,
            strict=True,
        )
    )
    write_csv(path, [("group", "kind", "similarity", "bits", "data", "first", "other_data", "other"), *lines])


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
        bits = "" if pairs.bits is None else f", {pairs.bits[pair]} bits"
        kind = "same content" if pairs.exact[pair] else f"similarity {pairs.similarity[pair]:.3f}{bits}"
        left.set_title(f"{kind}, group {pairs.group[pair]}", loc="left", fontsize=9)
    shown = "" if len(chosen) == len(pairs) else f", {len(chosen)} shown from the most to the least similar"
    figure.suptitle(f"{counted(len(pairs), 'pair')}{shown}", fontsize=11, y=1 - 0.1 / figure.get_figheight(), va="top")
    save_figure(figure, path)
    return len(chosen)


def list_rows(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """Return the source and the path of each row."""
    return [(source.name, str(path)) for source in sources for path in source.embedding.paths]


def _hashes(sources: Sequence[Source]) -> np.ndarray:
    hashes = [source.embedding.likeness for source in sources]
    if any(some is None for some in hashes):
        raise UserError(f"threshold={AUTO} needs the hashes of pixels, which a file of features lacks: give a number")
    return np.concatenate(hashes)


def _number(leader: np.ndarray) -> np.ndarray:
    """The numbers of the pairs' groups (P,), from 1 in the order of the list."""
    _, first, number = np.unique(leader, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number] + 1


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
