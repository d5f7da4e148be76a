"""Variability of the scores over images, by redrawing the images."""

import math
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evaluation.ranking.scoring import Spec, compute_score
from evaluation.transferability._threads import threads
from evaluation.transferability.base import Sample, Score
from sslkit.data.held_out import first_and_member
from sslkit.errors import UserError

ROUNDING = 1e-9  # of a score, relative: smaller differences are the order of sums in float64
LARGEST = 400  # images of a half-sample; beyond, the spread is scaled to the full number


@dataclass(frozen=True)
class Column:
    """One metric of the models that it can score. models: their indices in the samples. scores: in that order."""

    spec: Spec
    models: tuple[int, ...]
    scores: tuple[Score, ...]

    @property
    def values(self) -> np.ndarray:
        """Return the scores (M,), over the zoo for metrics that need it."""
        return combine(self.spec, self.scores)

    @property
    def terms(self) -> np.ndarray | None:
        """Return the terms (N, M), if the metric is a mean over all images, else None."""
        terms = [score.terms for score in self.scores]
        if any(array is None for array in terms) or len({len(array) for array in terms}) != 1:
            return None
        return np.stack([array.cpu().numpy() for array in terms], 1)


def replicates(columns: Sequence[Column], samples: Sequence[Sample], count: int, seed: int) -> list[np.ndarray]:
    """Return scores (count, M) of M models for each metric, on redrawn images shared by all models; (0, M) for 0.

    A metric that is a mean over images (LEEP, SFDA, ITM, ...) is averaged over images drawn with replacement, without
    a new fit. Others (LogME, GBC, PARC, ...) are recomputed on random halves of each class, drawn without replacement,
    because duplicate images would make classes look easier; images of one group are drawn together. Their spread times
    sqrt(n / (N - n)), n of N images, estimates that of all images; they are centred on the score. On synthetic classes
    it is 0.7 to 1.1 times the spread over new images; of TransRate up to 3 times, where classes have about as many
    images as features.
    """
    if not count:
        return [np.empty((0, len(column.models))) for column in columns]
    by_terms, groups = [column.terms for column in columns], samples[0].groups
    anew = [column for column, terms in zip(columns, by_terms, strict=True) if terms is None and column.models]
    fresh = iter(of_halves(anew, samples, count, seed))
    redrawn = []
    for column, terms in zip(columns, by_terms, strict=True):
        if not column.models:
            redrawn.append(np.empty((0, 0)))
        else:
            redrawn.append(next(fresh) if terms is None else of_terms(terms, count, seed, groups))
    return redrawn


def of_halves(columns: Sequence[Column], samples: Sequence[Sample], count: int, seed: int) -> list[np.ndarray]:
    """Return scores (count, M) of each metric. All metrics run on one half of a model at a time, and share its sums.

    Halves are computed in parallel, each on one thread: for a few hundred images synchronisation takes longer than
    the work.
    """
    from threadpoolctl import threadpool_limits

    scores = [np.empty((count, len(column.models))) for column in columns]
    if not columns:
        return scores
    halves = [half(samples[0], seed, number) for number in range(count)]
    workers = torch.get_num_threads()
    single = {"initializer": torch.set_num_threads, "initargs": (1,)}  # the setting is per thread
    # Restore process-wide settings that metrics change while they run in parallel.
    with threads(1), threadpool_limits(1), warnings.catch_warnings(), ThreadPoolExecutor(workers, **single) as pool:
        for number, parts in enumerate(pool.map(lambda rows: _on_half(columns, samples, rows), halves)):
            for k, column in enumerate(columns):
                scores[k][number] = combine(column.spec, [parts[k, m] for m in column.models])
    share = len(halves[0]) / len(samples[0])
    return [spread_of_all(column.values, drawn, share) for column, drawn in zip(columns, scores, strict=True)]


def spread_of_all(scores: np.ndarray, found: np.ndarray, share: float) -> np.ndarray:
    """Rescale scores (count, M) of a share of the images to the spread for all images, about their scores (M,).

    nan if they carry no information: every part has all images (classes of one image), or every part has the same score
    but the whole has another (H-score of fewer images than features).
    """
    if share >= 1:
        return np.full_like(found, np.nan)
    apart = found - found.mean(0)
    width = np.abs(apart).max(0)
    silent = (width <= ROUNDING * np.abs(scores)) & (np.abs(found.mean(0) - scores) > width)
    return np.where(silent, np.nan, scores + apart * np.sqrt(share / (1 - share)))


def _on_half(columns: Sequence[Column], samples: Sequence[Sample], rows: Tensor) -> dict[tuple[int, int], Score]:
    """Return scores by (metric, model)."""
    parts = {}
    for m, sample in enumerate(samples):
        asked = [k for k, column in enumerate(columns) if m in column.models]
        if asked:
            rows_of_half = sample.take(rows)
            parts |= {(k, m): of_part(columns[k].spec, rows_of_half) for k in asked}
    return parts


def of_part(spec: Spec, part: Sample) -> Score:
    """Score a part of the images; nan, without parts, if the metric refuses it: it may be too small."""
    try:
        return compute_score(spec, part)
    except UserError:
        return Score(math.nan)


def of_terms(terms: np.ndarray, count: int, seed: int, groups: Tensor | None = None) -> np.ndarray:
    """Return means (count, M) of terms (N, M) over N rows drawn with replacement, or over whole groups (N,) of them."""
    n = len(terms)
    if groups is not None and len(groups) == n:  # the terms of a metric that holds some images out are of these only
        first, member = first_and_member(groups, n)
        sums = np.zeros((len(first), terms.shape[1]))
        np.add.at(sums, member.numpy(), terms)
        drawn = _draws(len(first), count, seed)
        return drawn @ sums / (drawn @ np.bincount(member.numpy()))[:, None]
    return _draws(n, count, seed) @ terms / n


def _draws(n: int, count: int, seed: int) -> np.ndarray:
    """Return how often each of n is drawn in n draws with replacement, (count, n)."""
    return np.random.default_rng([seed, n]).multinomial(n, np.full(n, 1 / n), size=count)


def half(sample: Sample, seed: int, number: int, largest: int = LARGEST) -> Tensor:
    """Draw rows (n,), ascending: half of each class, at least one image, in total at most about `largest`."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
    y, classes = sample.labels_or_one
    first, member = first_and_member(sample.groups, len(y))
    largest, y = largest * len(first) // len(y), y.cpu()[first]
    share = min(0.5, largest / len(y))
    order = torch.randperm(len(y), generator=generator)
    position = torch.empty_like(order)
    for label in range(classes):  # the position of each row in its class, in random order
        rows = order[y[order] == label]
        position[rows] = torch.arange(len(rows))
    sizes = torch.bincount(y, minlength=classes)
    keep = (sizes * share).round().long().clamp_min(1)
    return (position < keep[y])[member].nonzero()[:, 0].to(sample.device)


def combine(spec: Spec, scores: Sequence[Score]) -> np.ndarray:
    """Return the scores (M,) of the models, over the zoo for metrics that need it; nan for models without parts."""
    if spec.over_zoo is None:
        return np.array([score.value for score in scores])
    values = np.full(len(scores), np.nan)
    able = [k for k, score in enumerate(scores) if score.parts]
    if able:
        values[able] = spec.over_zoo([scores[k].parts for k in able])
    return values
