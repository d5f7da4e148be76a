"""Nearest neighbours of very many rows: an inverted file of float16 rows in the cells of k-means, with its recall."""

from typing import Any

import numpy as np

from sslkit.ties import search_error

CELLS = 4  # times the root of the number of rows
TO_FIT = 40  # rows for each cell's centre
ROWS = 2**14  # rows added or searched at a time
SAMPLE = 1000  # rows whose exact neighbours measure the recall
GOAL = 0.95  # recall up to which more cells are visited
FIRST, MOST = 8, 256  # cells that a query visits


def approximate_neighbours(x: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """Find k of the nearest other rows of each row by cosine, falling: ((N, k) int32, recall).

    x: (N, A) of any float type, which may be memory-mapped. Memory beside it: 2 N A bytes, the ids, and some 0.5 GB.
    recall: share of the exact neighbours among those found, of 1,000 rows. Cells are visited until it is 0.95, or 256.
    """
    index = _index(x)
    some = np.unique(np.linspace(0, len(x) - 1, min(SAMPLE, len(x))).astype(int))
    least = _exact_kth(x, some, k)
    index.nprobe = min(FIRST, index.nlist)
    while (recall := _recall(index, x, some, k, least)) < GOAL and index.nprobe < min(MOST, index.nlist):
        index.nprobe = min(2 * index.nprobe, MOST, index.nlist)
    found = np.empty((len(x), k), np.int32)
    for start in range(0, len(x), ROWS):
        rows = np.arange(start, min(start + ROWS, len(x)))
        found[rows] = _search(index, x, rows, k)[0]
    return found, recall


def _unit(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, dtype=np.float32)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def _index(x: np.ndarray) -> Any:
    import faiss

    n, width = x.shape
    cells = max(1, min(int(CELLS * n**0.5), n // TO_FIT))
    kind, metric = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexIVFScalarQuantizer(faiss.IndexFlatIP(width), width, cells, kind, metric, False)
    index.cp.spherical = True
    index.train(_unit(x[np.linspace(0, n - 1, min(n, TO_FIT * cells)).astype(int)]))
    for start in range(0, n, ROWS):
        index.add(_unit(x[start : start + ROWS]))
    return index


def _search(index: Any, x: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (ids (n, k), cosines (n, k)) of the nearest others; a row with too few is compared with all cells."""
    query = _unit(x[rows])
    cosines, ids = index.search(query, k + 1)
    few = (ids < 0).any(1)
    if few.any():
        import faiss

        every = faiss.SearchParametersIVF(nprobe=index.nlist)
        cosines[few], ids[few] = index.search(query[few], k + 1, params=every)
    own = ids == rows[:, None]
    own[~own.any(1), -1] = True  # among copies of itself a row may be missing: the last is left out
    return ids[~own].reshape(-1, k), cosines[~own].reshape(-1, k)


def _exact_kth(x: np.ndarray, some: np.ndarray, k: int) -> np.ndarray:
    """Return the cosine (n, 1) of each row's k-th neighbour."""
    query, best = _unit(x[some]), np.full((len(some), k), -np.inf, np.float32)
    for start in range(0, len(x), ROWS):
        cosines = query @ _unit(x[start : start + ROWS]).T
        own = np.flatnonzero((some >= start) & (some < start + ROWS))
        cosines[own, some[own] - start] = -np.inf
        both = np.concatenate([best, cosines], 1)
        best = np.partition(both, both.shape[1] - k, axis=1)[:, -k:]
    return best.min(1, keepdims=True)


def _recall(index: Any, x: np.ndarray, some: np.ndarray, k: int, least: np.ndarray) -> float:
    """Return the share of the found rows that are as near as the exact k-th; rounding to float16 does not count."""
    ids, _ = _search(index, x, some, k)
    query = _unit(x[some])
    cosines = np.stack([query[row] @ _unit(x[at]).T for row, at in enumerate(ids)])
    return float((cosines >= least - 2 * search_error(x.shape[1])).mean())
