"""Near-copies: how alike two unrelated items are by chance, and groups whose members are all near their representative.

The groups are those of leader clustering (Hartigan, Clustering Algorithms, 1975, chapter 3): in a given order each item
joins the nearest representative, or becomes one. No pair is listed, and no chain joins items that are not alike.
"""

from collections.abc import Callable
from statistics import NormalDist
from typing import Protocol

import numpy as np

from sslkit.errors import UserError

SAMPLED = 2**20  # pairs that chance is measured on: 50,000 of them lie beyond the twentieth
# Beyond the twentieth the upper tail holds too few pairs, and too many true copies, to tell of unrelated pairs.
TAIL = 0.05
# Estimates after the first: each leaves out the pairs above the level of the last, which are copies. On the bits of the
# hashes of two sets of drawings, with 12 pictures x 10 copies (8 % of the pairs, beyond the twentieth), 40 x 10 and
# 200 x 2, the second was within 4 bits of 104 of the level of the unrelated pairs alone, in 18 draws; without leaving
# any out 12 x 10 had no level. More may take copies in where they are a quarter of all pairs (4 x 30, one draw of six).
ROUNDS = 2
FEWEST = 32  # items: 496 pairs, 25 in the tail
_AT_ONCE = 2**16  # pairs that are compared at a time: some megabytes
BLOCK = 1024  # items that are compared with the representatives, and with each other, at a time


class Index(Protocol):
    """Representatives that items are compared with. Items are named by their rows."""

    def nearest(self, rows: np.ndarray) -> np.ndarray:
        """The nearest near representative of each row: (n,) int64 its position, in the order of `add`; -1 for none."""

    def compare(self, rows: np.ndarray) -> np.ndarray:
        """(n, n) bool: which of the rows are near each other."""

    def add(self, rows: np.ndarray) -> None:
        """Add representatives."""


def group_by_leaders(order: np.ndarray, n: int, index: Index) -> np.ndarray:
    """Return the row (n,) int64 of each item's representative; its own row for one that no other is near, or left out.

    order: rows, all different, in which they become representatives: let it depend on names, not on a listing.
    Memory is that of the representatives and of one block.
    """
    leader = np.arange(n)
    leaders: list[np.ndarray] = []
    count = 0
    for start in range(0, len(order), BLOCK):
        rows = order[start : start + BLOCK]
        position = index.nearest(rows) if count else np.full(len(rows), -1)
        is_near = position >= 0
        if is_near.any():
            leader[rows[is_near]] = np.concatenate(leaders)[position[is_near]]
        new = _lead(rows[~is_near], leader, index)
        leaders.append(new)
        count += len(new)
        index.add(new)
    return leader


def _lead(rows: np.ndarray, leader: np.ndarray, index: Index) -> np.ndarray:
    """Group the rows of a block among themselves in `leader`; return the new representatives."""
    if not len(rows):
        return rows
    near = index.compare(rows)
    left = np.ones(len(rows), bool)
    new = []
    for position, row in enumerate(rows):
        if left[position]:
            members = near[position] & left
            members[position] = True
            leader[rows[members]] = row
            left &= ~members
            new.append(row)
    return np.array(new)


def chance_similarity(similarity: Callable[[np.ndarray, np.ndarray], np.ndarray], rows: np.ndarray) -> float:
    """Return the similarity that less than one unrelated pair of all pairs of rows is expected to exceed.

    See `chance_levels`.
    """
    return chance_levels(similarity, rows)[1]


def chance_levels(similarity: Callable[[np.ndarray, np.ndarray], np.ndarray], rows: np.ndarray) -> tuple[float, float]:
    """Return the similarities that a twentieth, and that less than one, of the unrelated pairs are expected to exceed.

    similarity: of two arrays of rows (P,), larger for more alike ones: (P,). rows: at least `FEWEST`.
    The upper half of the similarities of sampled pairs is taken for that of a normal distribution, whose standard
    deviation its 95th percentile gives; the level is where 1 / pairs of the distribution lies beyond. Copies are pairs,
    too: the first estimate mirrors the lower half, in which none are, and later ones leave out what lies above it.
    Raises UserError for fewer rows.
    """
    n = len(rows)
    if n < FEWEST:
        raise UserError(f"{n} images are too few to tell copies from chance: at least {FEWEST} are needed")
    pairs = n * (n - 1) // 2
    if pairs <= SAMPLED:
        first, second = np.triu_indices(n, 1)
    else:
        draws = np.random.default_rng(0)
        first = draws.integers(0, n, SAMPLED)
        second = (first + draws.integers(1, n, SAMPLED)) % n
    starts = range(0, len(first), _AT_ONCE)
    pairs_at_once = ((rows[each[start : start + _AT_ONCE]] for each in (first, second)) for start in starts)
    values = np.sort(np.concatenate([similarity(*some) for some in pairs_at_once]).astype(np.float64))
    normal = NormalDist()
    deviations = normal.inv_cdf(1 - 1 / pairs) / normal.inv_cdf(1 - TAIL)
    middle, lower = np.quantile(values, [0.5, TAIL])
    level = middle + (middle - lower) * deviations
    for _ in range(ROUNDS):
        middle, upper = np.quantile(values[: np.searchsorted(values, level, "right")], [0.5, 1 - TAIL])
        level = middle + (upper - middle) * deviations
    return float(upper), float(level)
