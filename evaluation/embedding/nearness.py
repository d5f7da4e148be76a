"""When two images are near-copies: by the hashes of their pixels, and by their features as far as these can tell.

Cosines of features tell copies from other images only where the network puts unrelated images far apart: the level that
chance reaches is estimated from the images themselves, and is 1 or more for most small and all untrained networks.
Strong networks find images of the same meaning alike that are no copies. So pixels decide, and features that can tell
must agree the more, the more the pixels differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sslkit.data.likeness import BITS, HashIndex, chance_bits, is_blank, near_bits
from sslkit.numerics.near_copies import FEWEST, Index, chance_levels
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
    Near are hashes within `near_bits`. Features that can tell make more of it: beyond half of these bits their cosine
    is to be among the nearest twentieth of unrelated pairs, and where it is above what any of them reaches, hashes may
    differ in `chance_bits`. Of 360 copies of clip art and cut-out photographs pixels alone find 338, with 21 wrong
    pairs; by efficientnet_lite0 the first step loses none of these and takes 10 wrong pairs away, the second finds 8
    more and brings 8 back (6 sets of 600 with 60 copies).
    """
    told = rows[~is_blank(hashes[rows])]
    bits, most = near_bits(hashes[told]), chance_bits(hashes[told])
    levels, why = _feature_levels(x, told)
    if levels is None:
        index, rule = HashIndex(hashes, bits), f"pixels whose hashes differ in at most {bits} of {BITS} bits"
    else:
        steps = {bits // 2: -np.inf, bits: levels[0], max(bits, most): levels[1]}
        index = AgreedIndex(hashes, x, steps)
        parts = [f"in {end} where the similarity of the features is above {least:.3g}" for end, least in steps.items()]
        rule = f"pixels whose hashes differ in at most {bits // 2} of {BITS} bits, " + ", ".join(parts[1:])
    if why:
        rule += f"; {why}, so pixels alone decide"
    if blank := len(rows) - len(told):
        rule += (
            f"; {counted(blank, 'image')} without structure {'are' if blank > 1 else 'is'} compared by content alone"
        )
    return Nearness(index, told, rule)


def _feature_levels(x: np.ndarray, rows: np.ndarray) -> tuple[tuple[float, float] | None, str]:
    """The `chance_levels` of the features' cosine, or None and why features do not tell."""
    if len(rows) < FEWEST:
        return None, f"{counted(len(rows), 'image')} are too few to measure what similarity features have by chance"
    if zero := len(_without_direction(x, rows)):
        return None, f"the features of {counted(zero, 'image')} have no direction (all zeros, or not finite)"
    levels = chance_levels(lambda a, b: pair_cosines(x, a, x, b), rows)
    if levels[1] >= 1 - search_error(x.shape[1]):
        return None, "features do not tell copies from other images, which reach a similarity of 1 by chance"
    return levels, ""


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
    """Representatives whose hash differs in few bits, and whose features are the more similar, the more it differs.

    hashes: (N, 4). x: (N, D) features. steps: bits, rising: the cosine above which features must be up to these.
    """

    def __init__(self, hashes: np.ndarray, x: np.ndarray, steps: Mapping[int, float]) -> None:
        self._by_hash, self.x, self._most = HashIndex(hashes, max(steps)), x, max(steps)
        self._least = np.full(self._most + 1, np.inf)
        for bits in sorted(steps, reverse=True):
            self._least[: bits + 1] = steps[bits]
        self._leaders = np.empty(0, np.int64)

    def nearest(self, rows: np.ndarray) -> np.ndarray:
        """See `sslkit.numerics.near_copies.Index`."""
        apart, at = self._by_hash.search(rows, min(CANDIDATES, len(self._leaders)))
        row, column = np.nonzero(apart <= self._most)
        apart, at = apart[row, column], at[row, column]
        near = pair_cosines(self.x, rows[row], self.x, self._leaders[at]) > self._least[apart]
        position = np.full(len(rows), -1)
        order = np.lexsort((at[near], apart[near]))[::-1]  # the last that is written stays: of the fewest bits
        position[row[near][order]] = at[near][order]
        return position

    def compare(self, rows: np.ndarray) -> np.ndarray:
        """See `sslkit.numerics.near_copies.Index`."""
        apart = self._by_hash.distances(rows)
        near = apart <= self._most
        return near & (cosines_among(self.x, rows) > self._least[np.minimum(apart, self._most)])

    def add(self, rows: np.ndarray) -> None:
        """See `sslkit.numerics.near_copies.Index`."""
        self._by_hash.add(rows)
        self._leaders = np.concatenate([self._leaders, rows])


def cosines_among(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(n, n) float64 cosines among rows of features without zeros."""
    some = np.asarray(x[rows], np.float64)
    some /= lengths(some)[:, None]
    return some @ some.T
