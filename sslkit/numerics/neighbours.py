"""Exact nearest neighbours by cosine, computed in blocks of the bank, and their votes.

The vote is that of Wu et al. 2018 (arXiv 1805.01978), each neighbour weighted by exp(s / T), with the constants of DINO
(Caron et al. 2021, arXiv 2104.14294).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sslkit.errors import UserError
from sslkit.numerics.ties import among_all, lengths, pair_cosines, settle

K, TEMPERATURE = 20, 0.07  # defaults of every kNN accuracy: those of DINO
BLOCK = 2**23  # numbers of the bank, or of similarities, held at a time: 32 MB; larger blocks are no faster
MORE = 16  # candidates beyond k, for rows tied with the k-th


@dataclass(frozen=True)
class Own:
    """The training images that belong to a test image, and are not compared with it: the same image, and its groups.

    image: (M,) number of each test image. group: (N,) of each training image. pairs: sorted image * `groups` + group of
    every group that has a copy of the image. groups: their number.
    """

    image: np.ndarray
    group: np.ndarray
    pairs: np.ndarray
    groups: int

    @classmethod
    def from_rows(cls, learned: np.ndarray, tested: np.ndarray, groups: np.ndarray | None) -> "Own":
        """learned, tested: (N,), (M,) int64, equal for the same image. groups: (N,) of the training images, or None."""
        numbers = np.unique(np.concatenate([learned, tested]), return_inverse=True)[1]
        learned, tested = np.split(numbers, [len(learned)])
        group = learned if groups is None else np.unique(groups, return_inverse=True)[1]
        count = int(group.max()) + 1
        pairs = np.unique(learned * count + group)
        return cls(tested, group, pairs[np.isin(pairs // count, tested)], count)

    def at(self, order: np.ndarray, rows: np.ndarray) -> "Own":
        """Return that of the test images `rows` beside the training images in another order."""
        return replace(self, image=self.image[rows], group=self.group[order])

    def holds(self, rows: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Return True where a training image belongs to a test image. rows, position: any shapes that broadcast."""
        if not len(self.pairs):
            return np.zeros(np.broadcast_shapes(rows.shape, position.shape), bool)
        pair = self.image[rows] * self.groups + self.group[position]
        return self.pairs[np.searchsorted(self.pairs, pair).clip(max=len(self.pairs) - 1)] == pair

    @property
    def in_train(self) -> np.ndarray:
        """(M,) bool: test images that are also training images."""
        return np.isin(self.image, self.pairs // self.groups)

    @property
    def most(self) -> int:
        """The largest number of training images that belong to one image."""
        if not len(self.pairs):
            return 0
        sizes = np.bincount(self.group, minlength=self.groups)[self.pairs % self.groups]
        return int(np.bincount(self.pairs // self.groups, sizes).max())


def unit_rows(x: np.ndarray, where: str, rows: np.ndarray | None = None) -> np.ndarray:
    """Return the rows (n, D) float32 scaled to length 1. rows: (n,) their numbers, for the message.

    Raises UserError for a row of zeros: it has no direction, so any label would be arbitrary.
    """
    x = np.asarray(x, dtype=np.float32)
    length = lengths(x)
    zero = np.flatnonzero(length == 0)
    if len(zero):
        first = zero[0] if rows is None else rows[zero[0]]
        raise UserError(
            f"{where}: {len(zero)} rows of features are all zeros, the first is row {first}, and have no cosine; "
            "was the model sound, or half precision too coarse?"
        )
    return x / length.astype(np.float32)[:, None]


def neighbours(
    bank: np.ndarray,
    order: np.ndarray,
    query: np.ndarray,
    k: int,
    own: Own | None = None,
    rows: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the k rows of the bank most similar to each query: (similarity (M, k) float64, position (M, k) int64).

    bank: (N, D), which may be memory-mapped. order: (N,) its rows in the order of the positions; of equally similar
    rows (see `sslkit.numerics.ties`) the smaller position comes first. query: (M, D), without rows of zeros.
    own: of the queries and the positions: the bank's images that belong to a query are left out.
    rows: (M,) the numbers of the queries, for messages.
    The same on every processor. Similarities are exact to float64 if another one is near, else to float32.
    Raises UserError for rows of zeros.
    """
    unit, width = unit_rows(query, "test", rows), bank.shape[1]
    most = 0 if own is None else own.most
    similarity, position = _candidates(bank, order, unit, min(k + most + MORE, len(order)))
    if own is not None:
        similarity[own.holds(np.arange(len(query))[:, None], position)] = -np.inf
    whole = similarity.shape[1] == len(order)
    similarity, position, is_open = settle(
        similarity, position, k, width, lambda some, at: pair_cosines(query, some, bank, order[at])
    )
    similarity, position = similarity[:, :k], position[:, :k]
    if not whole:
        tied = np.flatnonzero(is_open)
        step = max(1, BLOCK // 2 // len(order))
        for start in range(0, len(tied), step):
            some = tied[start : start + step]
            similarity[some], position[some] = _all(bank, order, query, some, k, own)
    return similarity, position


def vote(
    similarity: np.ndarray, labels: np.ndarray, ks: Sequence[int], temperature: float, classes: int
) -> dict[int, np.ndarray]:
    """Return {k: (M,) label with the largest sum of exp(s / T) over the k nearest}; of equal sums the smaller label.

    similarity: (M, most) descending along each row, equal ones bit by bit. labels: (M, most) of these neighbours,
    below `classes`.
    """
    weight = np.exp((similarity - similarity[:, :1]).astype(np.float64) / temperature)
    cell = np.arange(len(labels))[:, None] * classes + labels
    return {k: _winners(cell[:, :k], weight[:, :k], classes) for k in ks}


def _winners(cell: np.ndarray, weight: np.ndarray, classes: int) -> np.ndarray:
    sums = np.bincount(cell.ravel(), weight.ravel(), len(cell) * classes).reshape(len(cell), classes)
    # Sums of the same k weights in two orders differ by k roundings, two evaluations of one exp by one.
    equal = 1 - (cell.shape[1] + 4) * 2.0**-52
    return (sums >= sums.max(1, keepdims=True) * equal).argmax(1)


def _blocks(bank: np.ndarray, order: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    step = max(1, BLOCK // bank.shape[1])
    for start in range(0, len(order), step):
        rows = order[start : start + step]
        yield start, unit_rows(bank[rows], "train", rows)


def _candidates(bank: np.ndarray, order: np.ndarray, query: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    import faiss

    similarity, position = np.empty((len(query), 0), np.float32), np.empty((len(query), 0), np.int64)
    for start, block in _blocks(bank, order):
        cosine, at = faiss.knn(query, block, min(k, len(block)), metric=faiss.METRIC_INNER_PRODUCT)
        similarity, position = np.hstack([similarity, cosine]), np.hstack([position, at + start])
        first = np.lexsort((position, -similarity), axis=-1)[:, :k]
        similarity, position = (np.take_along_axis(values, first, 1) for values in (similarity, position))
    return similarity, position


def _all(
    bank: np.ndarray,
    order: np.ndarray,
    query: np.ndarray,
    rows: np.ndarray,
    k: int,
    own: Own | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the k nearest of a few queries among all rows, if more rows than candidates may be tied for place k."""
    step = max(1, BLOCK // 4 // bank.shape[1])
    blocks = (bank[order[start : start + step]] for start in range(0, len(order), step))
    every = np.arange(len(order))
    left_out = np.zeros((len(rows), len(order)), bool) if own is None else own.holds(rows[:, None], every)
    return among_all(query[rows], blocks, len(order), left_out, k)
