"""Near-duplicates: pairs of images with the same content or with similar features, and the groups that they form."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.embedding.content import same_content
from evaluation.embedding.neighbours import nearest
from evaluation.embedding.sources import Part
from evaluation.embedding.table import Embedding
from evaluation.features.checks import checked
from evaluation.learners.neighbours import unit_rows
from sslkit.errors import UserError
from sslkit.files.csv_files import write_csv
from sslkit.numerics.ties import pair_cosines, search_error

THRESHOLD = 0.85  # cosine of efficientnet_lite0 at 224 pixels; other networks need another
MOST = 1_000_000  # pairs: a longer list helps nobody
CANDIDATES = 32  # neighbours of each image that an approximate search compares
BLOCK = 2**11  # rows of a block of cosines


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


def duplicates(sources: Sequence[Source], threshold: float = THRESHOLD, search: str = "exact") -> Duplicates:
    """Find the near-duplicates within the sources and between them.

    threshold: smallest cosine of a pair. search: "exact" compares all pairs, "hnsw" and "ivf" each image with the 32
    that an approximate search finds. Of images with the same content the first stands for all: each of the others is
    in one pair, with the first.
    Raises UserError for more than a million pairs.
    """
    checked("threshold", threshold, float, above=0, most=1)
    x = sources[0].embedding.x if len(sources) == 1 else np.concatenate([one.embedding.x for one in sources])
    first = same_content([(one.parts, one.embedding.paths) for one in sources])
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
    found, cosines, total = [np.empty((0, 2), np.int64)], [np.empty(0)], 0
    for pairs in candidates:
        cosine = pair_cosines(x, pairs[:, 0], x, pairs[:, 1])
        kept = cosine >= threshold
        total += kept.sum()
        if total > MOST:
            raise UserError(
                f"more than {MOST:,} pairs have a similarity of at least threshold={threshold:g}: raise it, "
                "or take another model: one that was not trained finds every image similar"
            )
        found.append(pairs[kept])
        cosines.append(cosine[kept])
    return np.concatenate(found), np.concatenate(cosines)


def write_duplicates(found: Duplicates, sources: Sequence[Source], path: Path) -> None:
    """Write a CSV of the pairs, one a row. Raises UserError if it cannot be written."""
    names = named(sources)
    pairs = (
        (group, "exact" if exact else "near", f"{similarity:.4f}", *names[a], *names[b])
        for (a, b), similarity, exact, group in zip(found.rows, found.similarity, found.exact, found.group, strict=True)
    )
    write_csv(path, [("group", "kind", "similarity", "data", "first", "other_data", "other"), *pairs])


def named(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """Return the source and the path of each row."""
    return [(one.name, str(path)) for one in sources for path in one.embedding.paths]


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
    found = nearest(x[rows], min(CANDIDATES, len(rows) - 1), search).indices
    pairs = np.stack([np.repeat(np.arange(len(rows)), found.shape[1]), found.ravel()], 1)
    yield np.unique(np.sort(rows[pairs], axis=1), axis=0)


def _groups(rows: np.ndarray, n: int) -> np.ndarray:
    """Return (P,) the number of each pair's group, from 1 in the order of the list."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = rows.astype(np.int32)  # csgraph counts in 32 bits: given 64, some releases of scipy put all in one group
    graph = coo_array((np.ones(len(rows), bool), (ends[:, 0], ends[:, 1])), shape=(n, n))
    label = connected_components(graph, directed=False)[1][rows[:, 0]]
    known, first, number = np.unique(label, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number] + 1 if len(known) else label
