"""Order equally similar rows the same way on every processor: rounding never decides between two of them.

A float32 search rounds differently on each processor and gives equal rows unequal cosines. So its candidates are
ordered by float64 cosines, computed only where another candidate is near, and two cosines count as equal where they
differ by no more than rounding. (A grid would not work: equal values on both sides of a border would differ again.)
"""

from collections.abc import Callable, Iterable

import numpy as np
import torch
import torch.nn.functional as F

ANGLE = 2.0**-22  # radians that float32 cannot resolve: four roundings of 2^-24, of features and of unit rows
SPREAD = 4.0  # times the root of the number of terms: 12 standard deviations of the sum's rounding, `search_error`

SHARE = {32: 2.0**-20, 64: 2.0**-40}  # of the largest score, by the bits of a number: see `rounding`

PAIRS = 2**19  # float64 numbers of row pairs held at a time

Pairs = Callable[[np.ndarray, np.ndarray], np.ndarray]  # rows (n,), positions (n,) -> (n,) float64 cosines


def search_error(width: int) -> float:
    """Return the largest error of a float32 inner product of two float32 unit rows of `width` numbers.

    Each row is rounded twice, and each partial sum once, in any order. A rounding is uniform up to 2^-24 of the partial
    sum, which grows to at most 1, so for D terms the standard deviation is sqrt(D) / 3 of that (Higham & Mary 2019:
    rounding errors add up like random draws).
    """
    return (4 + min(width, SPREAD * width**0.5)) * 2.0**-24


def settle(
    cosine: np.ndarray, position: np.ndarray, k: int, width: int, pairs: Pairs
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order the candidates of a float32 search: (cosine (M, C) float64, position (M, C), is_open (M,) bool).

    cosine: (M, C) float32, -inf for excluded rows. position: (M, C). width: of the rows. pairs: exact cosines.
    Sorted by falling cosine, equal ones by rising position; equal ones have the same bits. `is_open`: a row that is not
    a candidate may belong to the first k.
    """
    order = np.argsort(-cosine, axis=1, kind="stable")
    cosine, position = (np.take_along_axis(x, order, 1) for x in (cosine, position))
    finite = np.isfinite(cosine)
    with np.errstate(invalid="ignore"):  # -inf minus -inf
        apart = cosine[:, :-1] - cosine[:, 1:] > 2 * search_error(width) + ANGLE
    near = np.zeros_like(finite)
    near[:, :-1] |= ~apart
    near[:, 1:] |= ~apart
    cosine = cosine.astype(np.float64)
    rows, columns = np.nonzero(near & finite)
    cosine[rows, columns] = pairs(rows, position[rows, columns])
    is_open = ~(apart & finite[:, 1:])[:, k - 1 :].any(1)
    return *in_order(cosine, position, k, width), is_open


def in_order(cosine: np.ndarray, position: np.ndarray, k: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Sort float64 cosines (M, C) by falling value, equal ones by rising position; return at least the first k.

    Neighbours count as equal where rounding explains the difference: ANGLE times the sine of the angle, from the
    rounding of the float32 rows, and width + 4 roundings of float64.
    """
    order = np.argsort(-cosine, axis=1, kind="stable")  # stable sort is fast where most rows are already in order
    cosine = np.take_along_axis(cosine, order, 1)
    sine = np.sqrt(np.clip(1 - np.square(cosine[:, 1:]), 0, 1))
    starts = np.ones(cosine.shape, bool)
    with np.errstate(invalid="ignore"):
        starts[:, 1:] = cosine[:, :-1] - cosine[:, 1:] > sine * ANGLE + (width + 4) * 2.0**-52
    stop = _end(starts, k)
    cosine, position = cosine[:, :stop], np.take_along_axis(position, order[:, :stop], 1)
    tied = np.flatnonzero(~starts[:, :stop].all(1))
    group = np.maximum.accumulate(np.where(starts[tied, :stop], np.arange(stop), 0), axis=1)
    cosine[tied] = np.take_along_axis(cosine[tied], group, 1)
    position[tied] = np.take_along_axis(position[tied], np.lexsort((position[tied], group)), 1)
    return cosine, position


def _end(starts: np.ndarray, k: int) -> int:
    """Return the number of columns that hold the first k of every row and all that equal the last of them."""
    later = starts[:, k:]
    return starts.shape[1] if not later.any(1).all() else k + int(later.argmax(1).max(initial=0))


def pair_cosines(x: np.ndarray, rows: np.ndarray, bank: np.ndarray, at: np.ndarray) -> np.ndarray:
    """(n,) float64 cosines of the rows `rows` (n,) of x (M, D) with the rows `at` (n,) of the bank (N, D).

    That of a row of zeros is 0.
    """
    cosines, lengths_of_x = np.empty(len(rows)), lengths(x)
    step = max(1, PAIRS // x.shape[1])
    for start in range(0, len(rows), step):
        some = slice(start, start + step)
        near = bank[at[some]].astype(np.float64)
        products = np.einsum("nd,nd->n", x[rows[some]].astype(np.float64), near)
        norms = lengths_of_x[rows[some]] * lengths(near)
        cosines[some] = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return cosines


def among_all(
    x: np.ndarray, blocks: Iterable[np.ndarray], n: int, left_out: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of all rows: (cosine (M, k) float64, position (M, k)), if too many are tied for a search.

    x: (M, D). blocks: the n searched rows, in order. left_out: (M, n) bool.
    """
    x = x.astype(np.float64)
    x /= lengths(x)[:, None]
    cosine, start = np.empty((len(x), n)), 0
    for block in blocks:
        block = block.astype(np.float64)
        cosine[:, start : start + len(block)] = x @ block.T / lengths(block)
        start += len(block)
    cosine[left_out] = -np.inf
    cosine, position = in_order(cosine, np.broadcast_to(np.arange(n), cosine.shape), k, x.shape[1])
    return cosine[:, :k], position[:, :k]


def nearest_of_all(x: torch.Tensor, k: int) -> torch.Tensor:
    """(N, k) the nearest other rows of each of x (N, D), as `among_all` finds them; a GPU is not waited for."""
    n, width = x.shape
    rows = F.normalize(x.double(), dim=1)
    cosine, position = (rows @ rows.T).fill_diagonal_(-torch.inf).sort(dim=1, descending=True, stable=True)
    sine = (1 - cosine[:, 1:].square()).clamp(0, 1).sqrt()
    starts = cosine[:, :-1] - cosine[:, 1:] > sine * ANGLE + (width + 4) * 2.0**-52
    group = F.pad(starts.cumsum(1), (1, 0))  # equal cosines have one number
    return (group * n + position).sort(dim=1).values[:, :k] % n


def rounding(scores: np.ndarray) -> np.ndarray:
    """Return the tolerance (N, 1) within which two scores of a row (N, K) count as equal: a share of the largest.

    A score is a sum of D products, with a rounding error of about sqrt(D) * 2^-53 of the largest (float32: 2^-24). The
    share is 2^-40 (2^-20): hundreds of that (one third) at D = 2,048. More would merge different float32 scores.
    """
    return SHARE[32 if scores.dtype == np.float32 else 64] * np.abs(scores).max(1, keepdims=True)


def top_class(scores: np.ndarray) -> np.ndarray:
    """Return the class (N,) int64 of the highest of scores (N, K); the first of those equal up to rounding."""
    return (scores >= scores.max(1, keepdims=True) - rounding(scores)).argmax(1)


def average_ranks(values: np.ndarray) -> np.ndarray:
    """(n,) ranks of the values from 1 for the smallest; equal values share the mean of theirs, as in scipy.stats."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[group]


def lengths(x: np.ndarray) -> np.ndarray:
    """(n,) float64 Euclidean lengths of rows (n, D)."""
    return np.sqrt(np.einsum("nd,nd->n", x, x, dtype=np.float64))
