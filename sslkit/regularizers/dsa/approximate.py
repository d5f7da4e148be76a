"""Nearest neighbours of very many rows: each cell of a k-means is compared with the cells next to it."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

PER_CELL = 1000  # rows of a cell in the mean: products with fewer queries take as long
TO_FIT = 40  # rows for each cell's centre
ROWS = 2**13  # rows read at a time
SAMPLE = 1000  # rows whose exact neighbours say how many cells must be compared: the recall is known to a point
# recall: of the neighbours of an image one in twenty is missed, and a further one stands for it
# (recipes/benchmarks/growth)
GOAL = 0.95


@dataclass(frozen=True)
class Cells:
    """Rows by the cells of a spherical k-means.

    order: (N,) the rows, cell by cell. starts: (C + 1,) of the cells in it. of_row: (N,) cells. near: (C, C) the cells
    by falling cosine of their centres, each cell itself first. unit: (N, A) float16 unit rows, in `order`.
    """

    order: np.ndarray
    starts: np.ndarray
    of_row: np.ndarray
    near: np.ndarray
    unit: np.ndarray

    def rows(self, cell: int) -> slice:
        return slice(self.starts[cell], self.starts[cell + 1])

    def float32(self, at: slice | np.ndarray) -> np.ndarray:
        return torch.from_numpy(self.unit[at]).float().numpy()  # several times as fast as numpy


def approximate_neighbours(x: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """Find k of the nearest other rows of each row by cosine: ((N, k) int32, recall).

    x: (N, A) of any float type, which may be memory-mapped. Each row is compared with the rows of the cells next to its
    own, of as many cells as hold 95 % of the exact neighbours of 1,000 rows; that share is the recall. Products are
    float32, of rows rounded to float16. Memory beside x: 2 N A bytes, the ids, and some 0.5 GB.
    """
    cells = _cells(x)
    count, recall = _cells_to_compare(cells, x, k)
    neighbours = np.empty((len(x), k), np.int32)
    for cell in range(len(cells.near)):
        rows = cells.rows(cell)
        for start in range(rows.start, rows.stop, ROWS):
            some = slice(start, min(start + ROWS, rows.stop))
            neighbours[cells.order[some]] = _nearest(cells, some, cell, count, k)
    return neighbours, recall


def _unit(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, dtype=np.float32)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def _cells(x: np.ndarray) -> Cells:
    import faiss

    n, width = x.shape
    count = max(1, n // PER_CELL)
    kmeans = faiss.Kmeans(width, count, niter=10, spherical=True, seed=0)
    kmeans.train(_unit(x[np.linspace(0, n - 1, min(n, TO_FIT * count)).astype(int)]))
    centres = kmeans.centroids
    of_row = np.empty(n, np.int32)
    for rows in _blocks(n):
        of_row[rows] = kmeans.index.search(_unit(x[rows]), 1)[1][:, 0]
    order = np.argsort(of_row, kind="stable")
    unit = np.empty(x.shape, np.float16)
    for rows in _blocks(n):
        unit[rows] = _unit(x[order[rows]])
    closeness = centres @ centres.T
    np.fill_diagonal(closeness, np.inf)
    near = np.argsort(-closeness, axis=1, kind="stable")
    return Cells(order, np.searchsorted(of_row[order], np.arange(count + 1)), of_row, near, unit)


def _cells_to_compare(cells: Cells, x: np.ndarray, k: int) -> tuple[int, float]:
    """Return the least number of cells, a row's own included, that reaches the goal, and the recall."""
    some = np.unique(np.linspace(0, len(x) - 1, min(SAMPLE, len(x))).astype(int))
    blocks = ((np.arange(rows.start, rows.stop), _unit(x[rows])) for rows in _blocks(len(x)))
    exact = _others(some, _merge(_unit(x[some]), blocks, k))
    order = np.argsort(cells.near, axis=1)  # [i, j]: how many cells are nearer to cell i than j
    places = order[cells.of_row[some][:, None], cells.of_row[exact]]
    count = int(np.sort(places, axis=None)[int(np.ceil(GOAL * places.size)) - 1]) + 1
    return count, float((places < count).mean())


def _nearest(cells: Cells, some: slice, cell: int, count: int, k: int) -> np.ndarray:
    """Return the k nearest others (n, k) of rows of a cell, among its next `count` cells, or more if they are small."""
    near, sizes = cells.near[cell], np.diff(cells.starts)
    count = max(count, int(np.searchsorted(np.cumsum(sizes[near]), k + 1)) + 1)
    bank = np.concatenate([np.arange(cells.starts[other], cells.starts[other + 1]) for other in near[:count]])
    blocks = (bank[rows] for rows in _blocks(len(bank)))
    nearest = _merge(cells.float32(some), ((at, cells.float32(at)) for at in blocks), k)
    return cells.order[_others(np.arange(some.start, some.stop), nearest)]


def _merge(query: np.ndarray, blocks: Iterable[tuple[np.ndarray, np.ndarray]], k: int) -> np.ndarray:
    """Return the numbers (n, k + 1) of the k + 1 nearest unit rows, nearest first. blocks: (numbers, rows)."""
    import faiss

    heap = faiss.ResultHeap(len(query), k + 1, keep_max=True)
    for numbers, rows in blocks:
        cosines, at = faiss.knn(query, rows, min(k + 1, len(rows)), metric=faiss.METRIC_INNER_PRODUCT)
        heap.add_result(cosines, numbers[at])
    heap.finalize()
    return heap.I


def _others(rows: np.ndarray, nearest: np.ndarray) -> np.ndarray:
    """Leave each row itself out of its k + 1 nearest: (n, k). Among copies it may be missing: then the last goes."""
    left_out = nearest == rows[:, None]
    left_out[~left_out.any(1), -1] = True
    return nearest[~left_out].reshape(len(rows), -1)


def _blocks(n: int) -> list[slice]:
    return [slice(start, min(start + ROWS, n)) for start in range(0, n, ROWS)]
