"""Simulations of the intervals of geometry, LiDAR and rankings, as in `simulations`: the value on unlimited images is
the mean over many data sets of the same size, since these statistics depend on it."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache

import numpy as np
import torch
from simulations import Draws, Interval

from evaluation.protocols.clustering import clustering
from evaluation.protocols.crowding import crowding
from evaluation.protocols.lidar import alignment_by_image, estimate_lidar
from evaluation.protocols.retrieval import Options, measure
from evaluation.ranking.inputs.samples import as_sample
from evaluation.ranking.ranking import intervals, ranks_of
from evaluation.ranking.resampling import Column, of_part, replicates
from evaluation.ranking.scoring import parse
from evaluation.ranking.truth.agreement import agreement
from evaluation.ranking.truth.paired_agreement import difference, over_tasks
from evaluation.results import statistics
from evaluation.results.statistics import bootstrap_mean, share
from evaluation.transferability.base import Sample
from sslkit.numerics.view_retrieval import find_other_views

SIZES = ((40, 6, 16), (100, 6, 32), (200, 20, 32))  # images, classes, features
METRICS = ("knn", "leep", "sfda", "concept_variation", "h_score")
Numbers = Mapping[str, tuple[float, Interval]]


def of_classes(name: str, rng: np.random.Generator, count: int) -> Draws:
    """Geometry whose interval is over classes: other classes of the same kind."""
    yield from _named(_geometry(False, count), name)


def of_rows(name: str, rng: np.random.Generator, count: int) -> Draws:
    """Spectrum and uniformity, whose interval is over images: other images of the same classes."""
    yield from _named(_geometry(True, count), name)


def _named(drawn: list[tuple[Numbers, Mapping[str, float]]], name: str) -> Draws:
    for numbers, expected in drawn:
        if name in numbers:
            yield numbers[name][1], expected[name]


@cache
def _geometry(same_classes: bool, count: int) -> list[tuple[Numbers, Mapping[str, float]]]:
    """Of data set after data set its numbers with their intervals, and their expectations."""
    found = []
    for n, classes, width in SIZES:

        def numbers(seed: int, n: int = n, classes: int = classes, width: int = width) -> Numbers:
            rng = np.random.default_rng(seed)
            x, y = _features(np.random.default_rng(0) if same_classes else rng, rng, n, classes, width)
            ranks = (2, min(20, width))
            others = crowding((x, y), alpha_ranks=ranks, seed=seed).others
            return {name: (one.value, one.interval) for name, one in others.items()}

        many = [numbers(10_000 + seed) for seed in range(max(count, 60))]
        names = set.union(*map(set, many))
        expected = {name: float(np.mean([one[name][0] for one in many if name in one])) for name in names}
        found += [(numbers(seed), expected) for seed in range(count // len(SIZES))]
    return found


def _features(
    of_classes: np.random.Generator, rng: np.random.Generator, n: int, classes: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    centre, spread = 0.8 * of_classes.standard_normal((classes, width)), of_classes.gamma(8, 1 / 8, classes)
    y = rng.integers(classes, size=n)
    y[: 2 * classes] = np.tile(np.arange(classes), 2)
    x = (centre[y] + spread[y, None] * rng.standard_normal((n, width))) * np.arange(1, width + 1) ** -0.5 + 0.3
    return x.astype(np.float32), y


def lidar(rng: np.random.Generator, count: int) -> Draws:
    def numbers(rng: np.random.Generator, n: int, q: int, width: int) -> tuple[float, Interval]:
        x = _views(rng, n, q, width)
        found = estimate_lidar(x)
        return found.value, found.interval

    yield from _with_expectation(numbers, ((20, 10, 16), (30, 5, 32), (100, 5, 32)), rng, count)


def alignment(rng: np.random.Generator, count: int) -> Draws:
    def numbers(rng: np.random.Generator, n: int, q: int, width: int) -> tuple[float, Interval]:
        distances = alignment_by_image(_views(rng, n, q, width)).numpy()
        found = bootstrap_mean(distances, n=500, unit="squared distance")
        return found.value, found.interval

    yield from _with_expectation(numbers, ((20, 10, 16), (30, 5, 32), (100, 5, 32)), rng, count)


def view_recall(rng: np.random.Generator, count: int) -> Draws:
    """Images whose other view is found in a third to nine tenths: they are looked for among each other."""

    def numbers(rng: np.random.Generator, n: int, q: int, width: int) -> tuple[float, Interval]:
        found = share(find_other_views(*_views(rng, n, q, width).unbind(1)).numpy())
        return found.value, found.interval

    yield from _with_expectation(numbers, ((40, 2, 16), (100, 2, 32), (300, 2, 24)), rng, count)


def retrievals(name: str, rng: np.random.Generator, count: int) -> Draws:
    """Images of 3 and 6 classes, other images of these being drawn, and of 40 instances, which are drawn anew."""

    def numbers(rng: np.random.Generator, n: int, classes: int, spread: float) -> tuple[float, Interval]:
        of_classes = rng if classes >= statistics.LEAST else np.random.default_rng(7)
        centres, y = of_classes.standard_normal((classes, 12)), np.arange(n) % classes
        x = centres[y] * spread + rng.standard_normal((n, 12))
        found = measure((x.astype(np.float32), y), Options(ks=(1,)))
        found = found.estimate if name == found.metric else found.others[name]
        return found.value, found.interval

    yield from _with_expectation(numbers, ((60, 3, 0.6), (120, 6, 0.7), (160, 40, 1.0)), rng, count)


def clusters(name: str, rng: np.random.Generator, count: int) -> Draws:
    """Clusters of 3 to 20 classes, which k-means finds in part, and not in the same part from each start."""

    def numbers(rng: np.random.Generator, n: int, classes: int, spread: float) -> tuple[float, Interval]:
        centres, y = np.random.default_rng(5).standard_normal((classes, 12)), rng.integers(classes, size=n)
        x = centres[y] * spread + rng.standard_normal((n, 12))
        [found] = clustering((x.astype(np.float32), y), restarts=5, iterations=20)
        found = found.estimate if name == found.metric else found.others[name]
        return found.value, found.interval

    yield from _with_expectation(numbers, ((100, 3, 1.0), (200, 6, 0.9), (300, 20, 1.0)), rng, count)


def _views(rng: np.random.Generator, n: int, q: int, width: int) -> torch.Tensor:
    scale = np.arange(1, width + 1)
    images = rng.standard_normal((n, 1, width)) * scale**-0.5
    return torch.from_numpy(images + 0.5 * rng.standard_normal((n, q, width)) * scale**-0.3)


def agreements(name: str, rng: np.random.Generator, count: int) -> Draws:
    """8 to 30 models (a Pearson correlation: 20 and 30) whose scores and accuracies correlate by 0 to 0.9."""
    models = (20, 30, 30) if name == "Pearson" else (8, 12, 30)

    def numbers(rng: np.random.Generator, m: int, rho: float) -> tuple[float, Interval]:
        truth = rng.standard_normal(m)
        scores = rho * truth + (1 - rho**2) ** 0.5 * rng.standard_normal(m)
        (found,) = agreement(truth, scores, measures=[name], n=200)
        return found.value, found.interval

    yield from _with_expectation(numbers, tuple(zip(models, (0.9, 0.6, 0.0), strict=True)), rng, count)


def over_several_tasks(paired: bool, rng: np.random.Generator, count: int) -> Draws:
    """The mean tau over three or seven tasks, which share their models; paired: less that of other scores."""

    def numbers(rng: np.random.Generator, m: int, tasks: int, rho: float) -> tuple[float, Interval]:
        quality, drawn = rng.standard_normal(m), []
        for _ in range(tasks):
            truth = 0.8 * quality + 0.6 * rng.standard_normal(m)
            scores = [part * truth + (1 - part**2) ** 0.5 * rng.standard_normal(m) for part in (rho, 0.4)]
            drawn.append([dict(zip(map(str, range(m)), column, strict=True)) for column in (truth, *scores)])
        found = difference(drawn, n=200) if paired else over_tasks([one[:2] for one in drawn], n=200)
        return found.value, found.interval

    yield from _with_expectation(numbers, ((8, 3, 0.8), (12, 7, 0.3), (20, 3, 0.6)), rng, count)


def scores(ranks: bool, rng: np.random.Generator, count: int) -> Draws:
    """Scores of three models, or their ranks, on 100 and 150 images: metrics that fit themselves to these and one that
    does not; redrawn images."""
    for n, classes in ((100, 4), (150, 3)):
        models = [(rng.standard_normal((classes, 16)) * size, rng.standard_normal((16, 7))) for size in (0.5, 0.6, 0.7)]
        many = [_scored(_samples(models, n, rng)) for _ in range(60)]
        for _ in range(count // 2 // len(METRICS) // len(models)):
            samples = _samples(models, n, rng)
            columns = _scored(samples)
            redrawn = replicates(columns, samples, 100, int(rng.integers(2**31)))
            for k, (column, again) in enumerate(zip(columns, redrawn, strict=True)):
                expected = np.mean([one[k].values for one in many], 0)
                ends = intervals(column.values, again, n)[int(ranks)]
                yield from zip(map(tuple, ends), ranks_of(expected) if ranks else expected, strict=True)


def _samples(models: list, n: int, rng: np.random.Generator) -> list[Sample]:
    classes = len(models[0][0])
    y = rng.integers(classes, size=n)
    y[: 2 * classes] = np.tile(np.arange(classes), 2)
    found = []
    for centres, head in models:
        x = centres[y] + rng.standard_normal((n, 16))
        probs = np.exp(x @ head / 2)
        found.append(as_sample(np.maximum(x, 0.01 * x), y, source_probs=probs / probs.sum(1, keepdims=True)))
    return found


def _scored(samples: list[Sample]) -> list[Column]:
    specs = [parse(metric) for metric in METRICS]
    return [Column(one, tuple(range(len(samples))), tuple(of_part(one, part) for part in samples)) for one in specs]


def _with_expectation(
    numbers: Callable[..., tuple[float, Interval]], settings: tuple, rng: np.random.Generator, count: int
) -> Iterator[tuple[Interval, float]]:
    for setting in settings:
        expected = float(np.mean([numbers(rng, *setting)[0] for _ in range(max(count, 100))]))
        for _ in range(count // len(settings)):
            yield numbers(rng, *setting)[1], expected
