"""Simulations of statistics that are given an interval. Each yields (interval, value on unlimited images) of one
data set after another; the interval is None where there is none."""

from collections.abc import Callable, Iterator

import numpy as np
from scipy import stats

from evaluation.learners.calibration import calibration_error, likelihood, measure_probabilities, softmax
from evaluation.learners.defect_scores import Regions, aupro, auroc
from evaluation.results import measures
from evaluation.results.class_means import difference_per_class, mean_per_class
from evaluation.results.comparison import _episodes, _images
from evaluation.results.numbers import MAE, R2, RMSE, measure_numbers, share_of_variance
from evaluation.results.over_groups import difference_over_groups
from evaluation.results.statistics import bootstrap_mean, difference_of_shares, over_episodes, over_seeds, share
from evaluation.tasks.segmentation import miou
from sslkit.numerics.paired import pair

Interval = tuple[float, float] | None
Draws = Iterator[tuple[Interval, float]]
MANY = 40_000  # images that stand for unlimited ones


def shares(rng: np.random.Generator, count: int) -> Draws:
    for number in range(count):
        n, p = (30, 100, 300)[number % 3], rng.beta(4, 1)
        yield share(rng.random(n) < p).interval, p


def share_differences(rng: np.random.Generator, count: int) -> Draws:
    """Shares of 30 to 300 images of one set less those of another."""
    for number in range(count):
        n, m, p, q = (30, 100, 300)[number % 3], (40, 300)[number % 2], *rng.beta(4, 1, 2)
        yield difference_of_shares(share(rng.random(n) < p), share(rng.random(m) < q)).interval, p - q


def probabilities(name: str, rng: np.random.Generator, count: int) -> Draws:
    """Probabilities of two to six classes, from half to three times as sure as right, of 40 to 300 images.

    Of every other data set the images come in groups of one to six that share a part of their scores.
    """

    def drawn(n: int, groups: np.ndarray, k: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
        scores = spread * (rng.standard_normal((n, k))[groups] + rng.standard_normal((n, k))) / 2**0.5
        return scores, (scores + rng.gumbel(size=(n, k))).argmax(1)

    whole = {"nll": likelihood, "brier": _brier, "ece": calibration_error}[name]
    for number in range(count):
        n, k, spread, times = (40, 100, 300)[number % 3], rng.integers(2, 7), rng.uniform(0.5, 3), rng.uniform(0.5, 3)
        groups = np.arange(n) if number % 2 else np.repeat(np.arange(n), rng.integers(1, 7, n))[:n]
        scores, y = drawn(n, groups, k, spread)
        many, of_many = drawn(MANY, np.arange(MANY), k, spread)
        found = measure_probabilities(times * scores, y, groups, number)[name]
        yield found.interval, whole(times * many, of_many)


def _brier(scores: np.ndarray, y: np.ndarray) -> float:
    return float(np.square(softmax(scores) - np.eye(scores.shape[1])[y]).sum(1).mean())


def class_means(rng: np.random.Generator, count: int) -> Draws:
    """Classes that differ, some with two to five images."""
    for _ in range(count):
        y, right = _classes(rng)
        yield mean_per_class(rng.random(len(y)) < right[y], y).interval, float(right.mean())


def _of_groups(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, float]:
    """The groups (N,) of 1 to 12 images, the share right in each, and the mean share of unlimited groups.

    The images of a group are from little to entirely alike.
    """
    groups = np.repeat(np.arange(count), rng.integers(1, 13, count))
    p, alike = rng.uniform(0.3, 0.95), 10 ** rng.uniform(-1.5, 1.5)
    return groups, rng.beta(p * alike, (1 - p) * alike, count), p


def shares_of_groups(rng: np.random.Generator, count: int) -> Draws:
    for number in range(count):
        groups, right, p = _of_groups(rng, (10, 25, 60)[number % 3])
        yield share(rng.random(len(groups)) < right[groups], groups).interval, p


def class_means_of_groups(rng: np.random.Generator, count: int) -> Draws:
    """Each group is of one of two or three classes, as patients are."""
    for number in range(count):
        groups, right, p = _of_groups(rng, (12, 30, 60)[number % 3])
        y = groups % (2 + number % 2)
        yield mean_per_class(rng.random(len(groups)) < right[groups], y, groups).interval, p


def group_differences(rng: np.random.Generator, count: int) -> Draws:
    """Two models, of which one is better on all images of some groups."""
    for number in range(count):
        groups, right, p = _of_groups(rng, (8, 25, 60)[number % 3])
        better, q = rng.random(right.shape) < 0.3, rng.uniform(0, 0.5)
        drawn = rng.random(len(groups))
        first = drawn < (right + better * q * (1 - right))[groups]
        weights = np.full(len(groups), 1 / len(groups))
        difference = weights * (first.astype(int) - (drawn < right[groups]))
        yield difference_over_groups(difference, weights, groups, number)["interval"], 0.3 * q * (1 - p)


def defect_rankings(rng: np.random.Generator, count: int) -> Draws:
    """Scores of 8 to 60 images of each kind, defects from little to far above the others."""
    for number in range(count):
        good, bad = ((30, 8), (60, 60), (12, 40))[number % 3]
        apart = rng.uniform(0, 3)
        score = np.concatenate([rng.standard_normal(good), apart + rng.standard_normal(bad)])
        yield auroc(score, np.repeat([False, True], [good, bad]))[0].interval, float(stats.norm.cdf(apart / 2**0.5))


def defect_rankings_of_groups(rng: np.random.Generator, count: int) -> Draws:
    """Scores of 12 to 40 groups of one to seven images, which share a part of their score."""
    for number in range(count):
        groups = np.repeat(np.arange((12, 24, 40)[number % 3]), rng.integers(1, 8, (12, 24, 40)[number % 3]))
        is_defect, apart = groups % 2 == 0, rng.uniform(0, 3)
        score = (rng.standard_normal(groups.max() + 1)[groups] + rng.standard_normal(len(groups))) / 2**0.5
        estimate = auroc(score + apart * is_defect, is_defect, groups)[0]
        yield estimate.interval, float(stats.norm.cdf(apart / 2**0.5))


def defect_regions(rng: np.random.Generator, count: int) -> Draws:
    """Maps of 8 to 30 images with one to three square defects, some found better than others."""

    def drawn(images: int) -> Regions:
        scores, masks = rng.standard_normal((images, 24, 24)), np.zeros((images, 24, 24), bool)
        for score, mask in zip(scores, masks, strict=True):
            for place in range(rng.integers(1, 4)):
                side = rng.integers(2, 7)
                mask[8 * place : 8 * place + side, 2 : 2 + side] = True
            score[mask] += rng.gamma(2, 0.5)
        return aupro(scores, masks)

    value = float(drawn(1500).area.mean())
    for number in range(count):
        yield drawn((8, 15, 30)[number % 3]).estimate().interval, value


def class_differences(rng: np.random.Generator, count: int) -> Draws:
    for _ in range(count):
        y, right = _classes(rng)
        better, worse = (1 - right) * rng.random(), (1 - right) * rng.random()
        drawn = rng.random(len(y))
        difference = (drawn < better[y]).astype(int) - (drawn > 1 - worse[y])
        yield difference_per_class(difference, y)[1], float((better - worse).mean())


def _classes(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The labels of 30 to 300 images of two to eight classes, the smallest of 2 to 5 images, and its share right."""
    sizes = rng.integers(8, 40, rng.integers(2, 9))
    sizes[0] = rng.integers(2, 6)
    return np.repeat(np.arange(len(sizes)), sizes), np.append(rng.uniform(0.3, 0.95), rng.beta(9, 1, len(sizes) - 1))


def image_differences(rng: np.random.Generator, count: int) -> Draws:
    """Two models on 30 to 300 images: either alone is right on a few."""
    for number in range(count):
        n, better, worse = (30, 100, 300)[number % 3], *rng.uniform(0.02, 0.2, 2)
        drawn = rng.random(n)
        yield _images(drawn < better, drawn > 1 - worse, number)["interval"], better - worse


def paired_images(rng: np.random.Generator, count: int) -> Draws:
    """The same, by `pair`, and of the mean of two answers to each image."""
    for number in range(count):
        n, better, worse = (30, 100, 300)[number % 3], *rng.uniform(0.02, 0.2, 2)
        drawn = rng.random((2 if number % 2 else 1, n))
        gain = pair((drawn < better).mean(0), (drawn > 1 - worse).mean(0))
        yield (gain.low, gain.high), better - worse


def episode_differences(rng: np.random.Generator, count: int) -> Draws:
    """From 5 episodes on, or seeds, whose difficulty the two models share."""
    for number in range(count):
        level = rng.beta(12, 4, (5, 20, 200)[number % 3])
        a, b = (rng.binomial(75, np.clip(level + shift, 0, 1)) / 75 for shift in (0.0, -0.05))
        many = rng.beta(12, 4, MANY)
        yield _episodes(a, b)["interval"], float((many - np.clip(many - 0.05, 0, 1)).mean())


def _predicted(rng: np.random.Generator, n: int, share: float, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers (n,) of variance 1, and predictions that explain a share of it; half of both varies between groups."""

    def drawn() -> np.ndarray:
        return (rng.standard_normal(n)[groups] + rng.standard_normal(n)) / 2**0.5

    predicted = share**0.5 * drawn()
    return predicted, predicted + (1 - share) ** 0.5 * drawn()


def numbers(name: str, rng: np.random.Generator, count: int) -> Draws:
    """R2, or an error, of 30 to 300 images, of which each stands alone or is one of three of a group."""
    for number in range(count):
        n, share, size = (30, 100, 300)[number % 3], rng.uniform(0.05, 0.95), (1, 3)[number % 2]
        groups = np.repeat(np.arange(n), size)
        predicted, y = _predicted(rng, len(groups), share, groups)
        value, errors, _ = measure_numbers(predicted, y, groups)
        left = (1 - share) ** 0.5
        exact = {R2: share, MAE: left * (2 / np.pi) ** 0.5, RMSE: left}
        yield {R2: value, **errors}[name].interval, exact[name]


def number_differences(rng: np.random.Generator, count: int) -> Draws:
    """R2 of two models, of which one adds noise to what the other predicts."""
    for number in range(count):
        n, share, more = (30, 100, 300)[number % 3], rng.uniform(0.2, 0.9), rng.uniform(0.05, 0.5)
        predicted, y = _predicted(rng, n, share, np.arange(n))
        other = predicted + more**0.5 * rng.standard_normal(n)
        yield _episodes(share_of_variance(predicted, y), share_of_variance(other, y))["interval"], more


def correlations(rng: np.random.Generator, count: int) -> Draws:
    """Pearson's r by Fisher's z, of 5 to 100 networks or tasks."""
    for number in range(count):
        n, rho = (5, 10, 100)[number % 3], rng.uniform(-0.9, 0.9)
        x = rng.standard_normal(n)
        found = stats.pearsonr(x, rho * x + (1 - rho**2) ** 0.5 * rng.standard_normal(n))
        yield tuple(found.confidence_interval(0.95)), rho


def means(rng: np.random.Generator, count: int) -> Draws:
    """The distance between two views of an image: a skewed number an image."""
    for number in range(count):
        yield bootstrap_mean(rng.gamma(2, 0.5, 60), n=500, seed=number, unit="squared distance").interval, 1.0


def seeds(rng: np.random.Generator, count: int) -> Draws:
    for number in range(count):
        yield over_seeds(0.8 + 0.02 * rng.standard_normal((3, 5)[number % 2])).interval, 0.8


def episodes(rng: np.random.Generator, count: int) -> Draws:
    for number in range(count):
        yield over_episodes(rng.binomial(75, rng.beta(12, 4, (5, 20, 200)[number % 3])) / 75).interval, 0.75


def label_maps(statistic: str, rng: np.random.Generator, count: int) -> Draws:
    """Images with one to four of several classes, rare ones too; wrong pixels go to other classes of the image."""
    for number in range(count):
        n, classes = ((30, 3), (60, 6), (150, 12))[number % 3]
        p = np.maximum(rng.dirichlet(np.ones(classes)), 0.5 / classes)
        right = rng.uniform(0.3, 0.95, classes)
        many = counted(rng, 4000, p / p.sum(), right)
        value, others = miou.estimates(counted(rng, n, p / p.sum(), right))
        whole = {
            "miou": miou.miou,
            "pixel_accuracy": lambda table: table[:, 0].sum() / table[:, 1].sum(),
            "class_accuracy": miou._class_accuracy,
        }
        yield {"miou": value, **others}[statistic].interval, whole[statistic](many)


def counted(rng: np.random.Generator, n: int, p: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the table (n, 3, K) of `miou.counts`."""
    present = rng.random((n, len(p))) < 1 - (1 - p) ** 2
    present[np.arange(n), rng.choice(len(p), n, p=p)] = True
    size = np.where(present, rng.gamma(1, 1, present.shape), 0)
    size = np.round(1000 * size / size.sum(1, keepdims=True))
    hit = np.round(size * rng.beta(4 * right, 4 * (1 - right), size.shape))
    others = present * 0.7 / present.sum(1, keepdims=True) + 0.3 * p
    given = hit + np.round((size - hit).sum(1, keepdims=True) * others)
    return np.stack([hit, size, given], 1)


def precisions(of_class: Callable, rng: np.random.Generator, count: int) -> Draws:
    """Several labels: scores whose distance between positive and negative images differs by class."""
    for number in range(count):
        n, classes = ((80, 2), (200, 4), (400, 6))[number % 3]
        frequent, apart = rng.uniform(0.1, 0.5, classes), rng.uniform(0.3, 2.5, classes)

        def draw(n: int, frequent: np.ndarray = frequent, apart: np.ndarray = apart) -> tuple[np.ndarray, np.ndarray]:
            y = np.where(rng.random((n, len(frequent))) < frequent, 1, -1)
            return rng.standard_normal(y.shape) + apart * (y > 0), y

        yield measures._precision(*draw(n), of_class).interval, measures.mean_ap(*draw(MANY), of_class)
