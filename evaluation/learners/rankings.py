"""Rankings of a gallery for queries, in blocks of bounded memory: where the answers stand, and scores of that.

A score is a sum over the answers of a query, in their order: of the i-th of `count` at a rank, all from 1. So it is
known of each image what the score would be without it, which gives the exact jackknife over images.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sslkit.numerics.neighbours import BLOCK, unit_rows
from sslkit.numerics.ties import ANGLE, lengths

Terms = Callable[[np.ndarray, np.ndarray, int], np.ndarray]  # i (R,), rank (R,), R -> (R,) of the sum
Answers = Callable[[int], tuple[np.ndarray, np.ndarray]]  # query -> rows of its answers, and rows that do not count


def average_precision(i: np.ndarray, rank: np.ndarray, count: int) -> np.ndarray:
    """Precision at each answer."""
    return i / (rank * count)


def precision_at_r(i: np.ndarray, rank: np.ndarray, count: int) -> np.ndarray:
    """Precision at each answer among the first R, for R answers (mAP@R, Musgrave et al. 2020, arXiv 2003.08505)."""
    return np.where(rank <= count, i / (rank * count), 0.0)


def trapezoid(i: np.ndarray, rank: np.ndarray, count: int) -> np.ndarray:
    """Area below precision over recall by trapezoids, as of Oxford's buildings (Philbin et al. 2007)."""
    before = np.where(rank == 1, 1.0, (i - 1) / np.maximum(rank - 1, 1))
    return (before + i / rank) / (2 * count)


def hit(k: int, i: np.ndarray, rank: np.ndarray, count: int) -> np.ndarray:
    """True where an answer is among the first k."""
    return ((i == 1) & (rank <= k)).astype(float)


def precision_at_k(k: int, i: np.ndarray, rank: np.ndarray, count: int) -> np.ndarray:
    """Precision at k, or at the last answer before that, as of revisited Oxford (Radenovic et al. 2018)."""
    last = min(int(rank.max()), k)
    return (rank <= last) / last


def recall_scores(ks: tuple[int, ...]) -> dict[str, Terms]:
    """Recall at each k: the share of queries with an answer among the first k."""
    return {f"recall_at_{k}": partial(hit, k) for k in ks}


@dataclass(frozen=True)
class Ranked:
    """Scores of queries.

    values: {score: (Q,)}, nan for a query without an answer. without: {score: (N,)}, the mean without each image, as a
    query and in the gallery. first: (Q,) row of the most similar image that counts, where `without` is computed.
    """

    values: Mapping[str, np.ndarray]
    without: Mapping[str, np.ndarray]
    first: np.ndarray

    @property
    def pairs(self) -> np.ndarray:
        """(Q,) equal for two images that are the most similar of each other: both are right at 1, or both are wrong."""
        row = np.arange(len(self.first))
        return np.where(self.first[self.first] == row, np.minimum(row, self.first), row)


def rank_gallery(
    queries: np.ndarray, gallery: np.ndarray, answers: Answers, scores: Mapping[str, Terms], without: Sequence[str] = ()
) -> Ranked:
    """Rank the whole gallery for each query by the cosine in float64, and score it.

    queries: (Q, D). gallery: (N, D), which may be memory-mapped. without: scores whose mean is computed without each
    image, too; the queries and the gallery are the same rows then.
    Of equally similar images, up to the rounding of float32 rows, those that are no answer come first: a network that
    cannot tell images apart gains nothing, in no order of theirs. Raises UserError for rows of zeros.
    """
    values = np.full((len(scores), len(queries)), np.nan)
    parts, lost = [scores[name] for name in without], np.zeros(len(gallery))
    effect, first = np.zeros((len(parts), len(gallery))), np.arange(len(queries))
    for query, cosine in _cosines(queries, gallery):
        right, left_out = answers(query)
        if not len(right):
            continue
        above, is_wrong = _answers_above(cosine, right, left_out, gallery.shape[1])
        i, rank = _ranks(above[is_wrong], len(right))
        values[:, query] = [score(i, rank, len(right)).sum() for score in scores.values()]
        if parts:
            terms = np.array([score(i, rank, len(right)) for score in parts])
            effect[:, is_wrong] += _without_wrong(i, rank, terms, parts)[:, above[is_wrong]]
            in_order = right[np.argsort(-cosine[right], kind="stable")]
            effect[:, in_order] += _without_right(i, rank, terms, parts)
            lost[in_order] += len(right) == 1
            cosine[left_out] = -np.inf
            first[query] = cosine.argmax()
    of_score = dict(zip(scores, values, strict=True))
    means = {name: _mean_without(of_score[name], row, lost) for name, row in zip(without, effect, strict=True)}
    return Ranked(of_score, means, first)


def first_answers(query: np.ndarray, gallery: np.ndarray, left_out: np.ndarray, k: int) -> np.ndarray:
    """Return (k,) rows of the gallery that are the most similar to a query (1, D); the smaller row of equal ones."""
    [(_, cosine)] = _cosines(query, gallery)
    cosine[left_out] = -np.inf
    return np.argsort(-cosine, kind="stable")[: min(k, len(gallery) - len(left_out))]


def _cosines(queries: np.ndarray, gallery: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each query and its cosines (N,) float64 with the gallery."""
    size, n = max(1, BLOCK // len(gallery)), len(gallery)
    step = max(1, BLOCK // gallery.shape[1])
    for start in range(0, len(queries), size):
        block = _unit_rows(queries[start : start + size], "queries")
        cosine = np.empty((len(block), n))
        for first in range(0, n, step):
            rows = _unit_rows(gallery[first : first + step], "images")
            np.matmul(block, rows.T, out=cosine[:, first : first + len(rows)])
        for row, of_query in enumerate(cosine):
            yield start + row, of_query


def _unit_rows(x: np.ndarray, where: str) -> np.ndarray:
    """Return rows (n, D) float64 of length 1; in float32 copies would differ by more than the tolerance."""
    length = lengths(x)
    if not length.all():
        unit_rows(x, where)  # says which rows are zeros
    return x / length[:, None]


def _answers_above(
    cosine: np.ndarray, right: np.ndarray, left_out: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return (N,) how many answers are more similar than each image, and (N,) bool: those that count, and are wrong."""
    tolerance = np.sqrt(np.clip(1 - np.square(cosine), 0, 1)) * ANGLE + (width + 4) * 2.0**-52
    above = len(right) - np.searchsorted(np.sort(cosine[right]), cosine + tolerance, side="right")
    is_wrong = np.ones(len(cosine), bool)
    is_wrong[right] = is_wrong[left_out] = False
    return above, is_wrong


def _ranks(above: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (R,) numbers and ranks of the answers, from 1. above: answers above each wrong image."""
    i = np.arange(1, count + 1)
    return i, i + np.cumsum(np.bincount(above, minlength=count + 1))[:count]


def _without_wrong(i: np.ndarray, rank: np.ndarray, terms: np.ndarray, scores: Sequence[Terms]) -> np.ndarray:
    """Return (M, R + 1): how each score changes without a wrong image that has 0, 1, ... R answers above it."""
    moved = np.array([score(i, np.maximum(rank - 1, 1), len(i)) for score in scores])
    changes = np.zeros((len(terms), len(i) + 1))
    changes[:, :-1] = np.cumsum((moved - terms)[:, ::-1], 1)[:, ::-1]
    return changes


def _without_right(i: np.ndarray, rank: np.ndarray, terms: np.ndarray, scores: Sequence[Terms]) -> np.ndarray:
    """Return (M, R): how each score changes without the first, second, ... answer."""
    total = terms.sum(1, keepdims=True)
    if len(i) == 1:
        return -total
    changes = -np.repeat(total, len(i), 1)
    for row, score in enumerate(scores):
        stay, moved = score(i, rank, len(i) - 1), score(i[1:] - 1, rank[1:] - 1, len(i) - 1)
        changes[row, 1:] += np.cumsum(stay)[:-1]
        changes[row, :-1] += np.cumsum(moved[::-1])[::-1]
    return changes


def _mean_without(values: np.ndarray, effect: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """Return (N,) the mean over the queries without each image, which is a query as well."""
    has_answer = ~np.isnan(values)
    left = has_answer.sum() - has_answer - lost
    return (np.nansum(values) - np.nan_to_num(values) + effect) / np.maximum(left, 1)
