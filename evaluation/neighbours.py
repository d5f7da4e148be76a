"""Exact nearest neighbours by cosine, a block of the bank at a time, and their votes."""

from collections.abc import Iterator, Sequence

import numpy as np

from sslkit.errors import UserError

BLOCK = 2**23  # numbers of the bank, or of similarities, held at a time: 32 MB; larger blocks are no faster


def unit_rows(x: np.ndarray, where: str, rows: np.ndarray | None = None) -> np.ndarray:
    """(n, D) float32 rows of length 1. rows: (n,) their numbers, for the message.

    Raises UserError for a row of zeros: it has no direction, and whatever label it got would look plausible.
    """
    x = np.asarray(x, dtype=np.float32)
    length = np.sqrt(np.einsum("nd,nd->n", x, x, dtype=np.float64))
    zero = np.flatnonzero(length == 0)
    if len(zero):
        first = zero[0] if rows is None else rows[zero[0]]
        raise UserError(
            f"{where}: {len(zero)} rows of features are all zeros, the first is row {first}, and have no cosine; "
            "was the model sound, or half precision too coarse?"
        )
    return x / length.astype(np.float32)[:, None]


def neighbours(
    bank: np.ndarray, order: np.ndarray, query: np.ndarray, k: int, own: tuple[np.ndarray, np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The k rows of the bank most similar to each query, exactly: (similarity (M, k) float32, position (M, k) int64).

    bank: (N, D), which may lie on the disk. order: (N,) its rows in the order that positions count in; of equally
    similar rows the smaller position comes first. query: (M, D) rows of length 1.
    own: (N,) groups by position and (M,) groups: the bank's images of a query's own group are left out.
    """
    most = 0 if own is None else int(np.unique(own[0], return_counts=True)[1].max())
    similarity, position = _candidates(bank, order, query, min(k + most + 1, len(order)))
    if own is not None:
        similarity[own[0][position] == own[1][:, None]] = -np.inf
    similarity, position = _sorted(similarity, position)
    if similarity.shape[1] > k:
        tied = np.flatnonzero(similarity[:, k - 1] == similarity[:, k])
        step = max(1, BLOCK // len(order))
        for rows in np.split(tied, range(step, len(tied), step)):
            similarity[rows, :k], position[rows, :k] = _all(bank, order, query, rows, k, own)
    return similarity[:, :k], position[:, :k]


def vote(
    similarity: np.ndarray, labels: np.ndarray, ks: Sequence[int], temperature: float, classes: int
) -> dict[int, np.ndarray]:
    """{k: (M,) the label with the largest sum of exp(s / T) over the k nearest}; of equal sums the smaller label.

    similarity: (M, most) falling along each row. labels: (M, most) of these neighbours, below `classes`.
    """
    weight = np.exp((similarity - similarity[:, :1]).astype(np.float64) / temperature)
    cell = np.arange(len(labels))[:, None] * classes + labels
    return {
        k: np.bincount(cell[:, :k].ravel(), weight[:, :k].ravel(), len(labels) * classes)
        .reshape(len(labels), classes)
        .argmax(1)
        for k in ks
    }


def _blocks(bank: np.ndarray, order: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    step = max(1, BLOCK // bank.shape[1])
    for start in range(0, len(order), step):
        rows = order[start : start + step]
        yield start, unit_rows(bank[rows], "train", rows)


def _candidates(bank: np.ndarray, order: np.ndarray, query: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    import faiss

    similarity, position = np.empty((len(query), 0), np.float32), np.empty((len(query), 0), np.int64)
    for start, block in _blocks(bank, order):
        found, at = faiss.knn(query, block, min(k, len(block)), metric=faiss.METRIC_INNER_PRODUCT)
        merged = _sorted(np.hstack([similarity, found]), np.hstack([position, at + start]))
        similarity, position = (kept[:, :k] for kept in merged)
    return similarity, position


def _all(
    bank: np.ndarray,
    order: np.ndarray,
    query: np.ndarray,
    rows: np.ndarray,
    k: int,
    own: tuple[np.ndarray, np.ndarray] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of a few queries among all similarities: where the k-th place is tied, the search picks any."""
    similarity = np.hstack([query[rows] @ block.T for _, block in _blocks(bank, order)])
    if own is not None:
        similarity[own[0] == own[1][rows, None]] = -np.inf
    position = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(similarity, position, 1), position


def _sorted(similarity: np.ndarray, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    falling = np.lexsort((position, -similarity), axis=-1)
    return np.take_along_axis(similarity, falling, 1), np.take_along_axis(position, falling, 1)
