"""The nearest other images of each image by cosine: exact, or approximate with its measured recall."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.features.checks import check_value
from sslkit.errors import UserError
from sslkit.files.writing import write_csv, write_whole
from sslkit.numerics.neighbours import MORE, Own, neighbours, unit_rows
from sslkit.numerics.ties import pair_cosines, settle

SEARCHES = ("exact", "hnsw", "ivf")
QUERIES = 2**12  # rows searched at a time
SAMPLE = 256  # rows whose exact neighbours measure the recall of an approximate search, within some 3 points
LINKS, BUILD_DEPTH, SEARCH_DEPTH = 32, 80, 128  # of the HNSW graph: Malkov & Yashunin 2018's M, efConstruction, ef
PROBES = 32  # IVF cells that a query visits: a round number; more find more and take longer, and the recall is printed
CELL = 39  # rows per IVF cell, the fewest from which faiss fits its centre without a warning
CSV_ROWS = 1000  # images of the table for people


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The K nearest other rows of each of N rows.

    indices: (N, K) int64 rows. similarities: (N, K) float32 cosines, falling. search: of SEARCHES.
    recall: share of the exact neighbours that were found, measured on at most 256 rows; 1 for an exact search.
    """

    indices: np.ndarray
    similarities: np.ndarray
    search: str
    recall: float


def nearest(x: np.ndarray, k: int, search: str) -> Neighbours:
    """Find the K nearest other rows of each row by cosine.

    x: (N, D), which may be memory-mapped. k: below N. search: "exact" compares all pairs; "hnsw" searches a graph of
    neighbours (Malkov & Yashunin 2018), "ivf" the nearest cells of k-means: for 100,000 rows and more.
    Equally similar rows (see `sslkit.numerics.ties`) come in the order of their rows; the result is the same in every
    run.
    Raises UserError for k not below N and for rows of zeros.
    """
    check_k(k, len(x))
    check_value("search", search, str, choices=SEARCHES)
    blocks = [np.arange(start, min(start + QUERIES, len(x))) for start in range(0, len(x), QUERIES)]
    if search == "exact":
        return Neighbours(*_stack(_exact(x, rows, k) for rows in blocks), search, 1.0)
    index = _index(x, search, k)
    indices, similarities = _stack(_approximate(index, x, rows, k) for rows in blocks)
    return Neighbours(indices, similarities, search, _recall(x, similarities, k))


def check_k(k: int, n: int, where: str = "") -> None:
    """Raises UserError if each of n images has no k others."""
    check_value("neighbours", k, int, least=1)
    if k >= n:
        raise UserError(
            f"neighbours={k} must be below the number of images: {n} image{'s' if n > 1 else ''}{where}, so each has "
            f"{n - 1} others"
        )


def write_neighbours(near: Neighbours, paths: Sequence[str], arrays: Path, table: Path) -> None:
    """Write the arrays as .npz with the paths, and a CSV of paths for people: of 1,000 images if there are more.

    Raises UserError if a file cannot be written.
    """
    with write_whole(arrays) as partial, partial.open("wb") as file:
        about = {"search": np.array(near.search), "recall": np.array(near.recall)}
        np.savez(file, indices=near.indices, similarities=near.similarities, paths=np.array(paths), **about)
    rows = np.unique(np.linspace(0, len(paths) - 1, min(CSV_ROWS, len(paths))).astype(int))
    lines = (
        (paths[row], rank, paths[other], f"{cosine:.4f}")
        for row in rows
        for rank, (other, cosine) in enumerate(zip(near.indices[row], near.similarities[row], strict=True), 1)
    )
    write_csv(table, [("image", "place", "neighbour", "similarity"), *lines])


def _stack(blocks: Iterator[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    indices, similarities = zip(*blocks, strict=True)
    return np.concatenate(indices), np.concatenate(similarities).astype(np.float32)


def _exact(x: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    every = np.arange(len(x))
    similarity, position = neighbours(x, every, np.asarray(x[rows]), k, Own.from_rows(every, rows, None), rows)
    return position, similarity


def _index(x: np.ndarray, search: str, k: int) -> Any:
    """Build a faiss index of the unit rows; on one thread for the graph, which depends on the order of insertion."""
    import faiss

    unit, width = unit_rows(x, "features"), x.shape[1]
    if search == "ivf":
        cells = max(1, min(int(4 * len(x) ** 0.5), len(x) // CELL))
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, cells, faiss.METRIC_INNER_PRODUCT)
        index.train(unit)
        index.add(unit)
        index.nprobe = min(PROBES, cells)
        return index
    index = faiss.IndexHNSWFlat(width, LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = BUILD_DEPTH, max(SEARCH_DEPTH, 2 * (k + 1 + MORE))
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        index.add(unit)
    finally:
        faiss.omp_set_num_threads(threads)
    return index


def _approximate(index: Any, x: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Search the index for rows (M,); those with fewer than k candidates are searched exactly."""
    query = np.asarray(x[rows])
    similarity, position = index.search(unit_rows(query, "features", rows), min(k + 1 + MORE, len(x)))
    similarity[(position == rows[:, None]) | (position < 0)] = -np.inf
    position = np.maximum(position, 0)
    few = np.flatnonzero(np.isfinite(similarity).sum(1) < k)

    def pairs(some: np.ndarray, at: np.ndarray) -> np.ndarray:
        return pair_cosines(query, some, x, at)

    similarity, position, _ = settle(similarity, position, k, x.shape[1], pairs)
    similarity, position = similarity[:, :k], position[:, :k]
    if len(few):
        position[few], similarity[few] = _exact(x, rows[few], k)
    return position, similarity


def _recall(x: np.ndarray, similarities: np.ndarray, k: int) -> float:
    """Return the share of exact neighbours that were found, for rows at equal distances; equal cosines count."""
    rows = np.unique(np.linspace(0, len(x) - 1, min(SAMPLE, len(x))).astype(int))
    exact = _exact(x, rows, k)[1][:, -1:]
    return float((similarities[rows] >= exact - 1e-6).mean())
