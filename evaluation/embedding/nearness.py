"""When two images are near-copies: by the hashes of their pixels, and by their features as far as these can tell.

Cosines of features tell copies from other images only where the network puts unrelated images far apart: the level that
chance reaches is estimated from the images themselves, and is 1 or more for most small and all untrained networks.
Strong networks find images of the same meaning alike that are no copies. So pixels decide, and features that agree
extend the search to pixels that alone would not do.
"""

from dataclasses import dataclass

import numpy as np

from sslkit.data.likeness import BITS, HashIndex, chance_bits, is_blank, near_bits
from sslkit.numerics.near_copies import FEWEST, Index, chance_similarity
from sslkit.numerics.neighbours import neighbours, unit_rows
from sslkit.numerics.ties import lengths, pair_cosines, search_error
from sslkit.terminal.say import counted

EQUAL = 1 - 1e-12  # the cosine of equal rows is 1 up to rounding
CANDIDATES = 32  # representatives nearest by pixels whose features are compared: a copy is among the first of them
READ = 2**12  # rows of features whose lengths are computed at a time


@dataclass(frozen=True)
class Nearness:
    """How near-copies are told. index: of representatives. rows: (n,) that are compared at all. rule: for people."""

    index: Index
    rows: np.ndarray
    rule: str


def by_cosine(x: np.ndarray, rows: np.ndarray, threshold: float) -> Nearness:
    """Near are features with a cosine of at least `threshold`. x: (N, D). rows: (n,) to compare.

    Raises UserError for rows of zeros, which have no cosine.
    """
    zero = _without_direction(x, rows)
    unit_rows(x[zero], "features", zero)
    return Nearness(CosineIndex(x, threshold), rows, f"features with a similarity of at least {threshold:g}")


def by_chance(hashes: np.ndarray, x: np.ndarray, rows: np.ndarray) -> Nearness:
    """Near are images that are more alike than unrelated ones are by chance, which is estimated from all of `rows`.

    hashes: (N, 4), see `sslkit.data.likeness`. x: (N, D) features. rows: (n,) to compare; images without structure are
    left out of them.
    Near are hashes within `near_bits`, or within `chance_bits` where the features' cosine is above its level of chance.
    """
    told = rows[~is_blank(hashes[rows])]
    bits, most = near_bits(hashes[told]), chance_bits(hashes[told])
    level, why = _feature_level(x, told)
    rule = f"pixels whose hashes differ in at most {bits} of {BITS} bits"
    if level is not None and most > bits:
        rule += f", or in {most} where the similarity of the features is above {level:.4g}"
    if why:
        rule += f"; {why}, so pixels alone decide"
    if blank := len(rows) - len(told):
        rule += (
            f"; {counted(blank, 'image')} without structure {'are' if blank > 1 else 'is'} compared by content alone"
        )
    hash_index = HashIndex(hashes, bits)
    index = hash_index if level is None else AgreedIndex(hash_index, x, most, level)
    return Nearness(index, told, rule)


def _feature_level(x: np.ndarray, rows: np.ndarray) -> tuple[float | None, str]:
    """The cosine that less than one unrelated pair is expected to exceed, or None and why features do not tell."""
    if len(rows) < FEWEST:
        return None, f"{counted(len(rows), 'image')} are too few to measure what similarity features have by chance"
    if zero := len(_without_direction(x, rows)):
        return None, f"the features of {counted(zero, 'image')} have no direction (all zeros, or not finite)"
    level = chance_similarity(lambda a, b: pair_cosines(x, a, x, b), rows)
    if level >= 1 - search_error(x.shape[1]):
        return None, "features do not tell copies from other images, which reach a similarity of 1 by chance"
    return level, ""


def _without_direction(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The rows whose features are all zeros, or not finite."""
    length = [lengths(np.asarray(x[rows[start : start + READ]])) for start in range(0, len(rows), READ)]
    length = np.concatenate([np.empty(0), *length])
    return rows[~np.isfinite(length) | (length == 0)]


class CosineIndex:
    """Representatives among rows of features x (N, D): those with a cosine of at least `threshold` are near."""

    def __init__(self, x: np.ndarray, threshold: float) -> None:
        self.x, self.least = x, min(threshold, EQUAL)
        self._leaders = np.empty(0, np.int64)

    def nearest(self, rows: np.ndarray) -> np.ndarray:
        """See `sslkit.numerics.near_copies.Index`."""
        position = neighbours(self.x, self._leaders, np.asarray(self.x[rows]), 1, rows=rows)[1][:, 0]
        cosine = pair_cosines(self.x, rows, self.x, self._leaders[position])
        return np.where(cosine >= self.least, position, -1)

    def compare(self, rows: np.ndarray) -> np.ndarray:
        """See `sslkit.numerics.near_copies.Index`."""
        return cosines_among(self.x, rows) >= self.least

    def add(self, rows: np.ndarray) -> None:
        """See `sslkit.numerics.near_copies.Index`."""
        self._leaders = np.concatenate([self._leaders, rows])


class AgreedIndex:
    """Representatives near by their hash, or within more bits and by a cosine of features x (N, D) above `level`."""

    def __init__(self, by_hash: HashIndex, x: np.ndarray, bits: int, level: float) -> None:
        self.by_hash, self.x, self.bits, self.level = by_hash, x, bits, level
        self._leaders = np.empty(0, np.int64)

    def nearest(self, rows: np.ndarray) -> np.ndarray:
        """See `sslkit.numerics.near_copies.Index`. Those near by hash come first, then the most similar features."""
        position = self.by_hash.nearest(rows)
        far = np.flatnonzero(position < 0)
        if len(far):
            position[far] = self._agreed(rows[far])
        return position

    def _agreed(self, rows: np.ndarray) -> np.ndarray:
        apart, at = self.by_hash.search(rows, min(CANDIDATES, len(self._leaders)))
        row, column = np.nonzero(apart <= self.bits)
        cosine = np.full(at.shape, -np.inf)
        cosine[row, column] = pair_cosines(self.x, rows[row], self.x, self._leaders[at[row, column]])
        first = np.lexsort((at, -cosine), axis=1)[:, :1]
        agrees = np.take_along_axis(cosine, first, 1) > self.level
        return np.where(agrees, np.take_along_axis(at, first, 1), -1)[:, 0]

    def compare(self, rows: np.ndarray) -> np.ndarray:
        """See `sslkit.numerics.near_copies.Index`."""
        apart = self.by_hash.distances(rows)
        return (apart <= self.by_hash.bits) | ((apart <= self.bits) & (cosines_among(self.x, rows) > self.level))

    def add(self, rows: np.ndarray) -> None:
        """See `sslkit.numerics.near_copies.Index`."""
        self.by_hash.add(rows)
        self._leaders = np.concatenate([self._leaders, rows])


def cosines_among(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(n, n) float64 cosines among rows of features without zeros."""
    some = np.asarray(x[rows], np.float64)
    some /= lengths(some)[:, None]
    return some @ some.T
