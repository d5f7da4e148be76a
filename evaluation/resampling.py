"""How far scores would move with other images: what tells a better model from a luckier draw."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from evaluation.scatter import labels_or_one
from evaluation.scoring import Spec, scored
from evaluation.transferability.base import Sample, Score

LARGEST = 400  # images of a half-sample; beyond, the spread is scaled to the full number


def replicates(spec: Spec, samples: Sequence[Sample], scores: Sequence[Score], count: int, seed: int) -> np.ndarray:
    """(count, M) scores of the M models on redrawn images, all models on the same ones; (0, M) for count=0.

    A metric that is a mean over images (LEEP, SFDA, ITM, ...) is a mean over images drawn with replacement, what it
    fitted being kept. Others (LogME, GBC, PARC, ...) are computed anew on random halves of each class: an image drawn
    twice would agree with itself, and look like a class that is easy to tell. Halves are drawn without replacement;
    their spread is that of a bootstrap of all images (n of N: times sqrt(n / (N - n))) and they are centred on the
    score.
    """
    if not count:
        return np.empty((0, len(samples)))
    terms = [score.terms for score in scores]
    if all(one is not None for one in terms) and len({len(one) for one in terms}) == 1:
        return of_terms(np.stack([one.cpu().numpy() for one in terms], 1), count, seed)
    drawn = [half(samples[0], seed, number) for number in range(count)]
    with one_thread():
        found = np.stack([combined(spec, [scored(spec, sample.take(rows)) for sample in samples]) for rows in drawn])
    n, total = len(drawn[0]), len(samples[0])
    return combined(spec, scores) + (found - found.mean(0)) * np.sqrt(n / max(total - n, 1))


@contextmanager
def one_thread() -> Iterator[None]:
    """On a few hundred images threads wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def of_terms(terms: np.ndarray, count: int, seed: int) -> np.ndarray:
    """(count, M) means of terms (N, M) over N rows drawn with replacement."""
    n = len(terms)
    draws = np.random.default_rng([seed, n]).multinomial(n, np.full(n, 1 / n), size=count)
    return draws @ terms / n


def half(sample: Sample, seed: int, number: int) -> torch.Tensor:
    """Rows (n,) ascending: half of each class, at least two of it (one of a class of one), at most about LARGEST."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
    y, classes = labels_or_one(sample)
    y = y.cpu()
    share = min(0.5, LARGEST / len(y))
    order = torch.randperm(len(y), generator=generator)
    place = torch.empty_like(order)
    for label in range(classes):  # the place of each row among its class, in random order
        rows = order[y[order] == label]
        place[rows] = torch.arange(len(rows))
    sizes = torch.bincount(y, minlength=classes)
    keep = (sizes * share).round().long().clamp_min(2).minimum(sizes)
    return (place < keep[y]).nonzero()[:, 0].to(sample.device)


def combined(spec: Spec, scores: Sequence[Score]) -> np.ndarray:
    """(M,) scores of the models: over the zoo, where the metric exists only there."""
    if spec.over_zoo is None:
        return np.array([score.value for score in scores])
    return np.array(spec.over_zoo([score.parts for score in scores]), dtype=float)
