"""Means over classes: equal to the plain share where there is nothing to weigh, variances without bias, coverage."""

import numpy as np
import pytest

from evaluation.results.class_means import difference_per_class, mean_per_class, means_by_class, variance_over_classes
from evaluation.results.statistics import share


def test_mean_per_class_of_one_class_is_the_share() -> None:
    right = np.arange(60) < 47
    assert mean_per_class(right, np.zeros(60)).interval == pytest.approx(share(right).interval, rel=1e-12)
    for every in (right < 2, right > 2):
        y = np.arange(60) % 4
        assert mean_per_class(every, y).interval == pytest.approx(share(every).interval, rel=1e-12)
    few = np.arange(6) < 5
    assert mean_per_class(few, np.arange(6)).interval == pytest.approx(share(few).interval, rel=0.05)  # a class each


@pytest.mark.parametrize("sizes", [[12], [1, 2, 3], [5] * 10, [40, 2]])
def test_the_variance_over_classes_is_unbiased_where_they_are_alike(sizes: list[int]) -> None:
    rng, y = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
    rows = rng.exponential(size=(4000, len(y)))
    means = np.stack([rows[:, y == label].mean(1) for label in range(len(sizes))], 1)
    found = [variance_over_classes(row, y) for row in rows]
    expected = (1 / np.array(sizes)).sum() / len(sizes) ** 2
    error = np.std(found) / len(rows) ** 0.5
    assert np.mean(found) == pytest.approx(expected, abs=4 * error)
    assert means_by_class(rows[0], y) == pytest.approx(means[0])


def test_the_variance_over_large_classes_is_that_of_the_strata() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 4000)
    right = rng.random(4000) < 0.5 + 0.1 * y
    plain = np.mean([right[y == label].var(ddof=1) / (y == label).sum() for label in range(4)]) / 4
    assert variance_over_classes(right, y) == pytest.approx(plain, rel=2e-3)


@pytest.mark.parametrize(
    ("sizes", "p"),
    [
        ([500, 4], 0.9),
        ([500, 4], 0.99),
        ([1000] * 8 + [3, 5], 0.95),
        ([4] * 100, 0.9),
        ([2] * 50, 0.7),
        ([20] * 10, 0.9),
    ],
)
def test_mean_per_class_covers_95_percent_with_small_classes_too(sizes: list[int], p: float) -> None:
    """A bootstrap within classes holds 0.9 in 38 % of the first: mostly all four of the second class are right."""
    rng, y = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
    found = [mean_per_class(rng.random(len(y)) < p, y).interval for _ in range(800)]
    assert np.mean([low <= p <= high for low, high in found]) > 0.93


@pytest.mark.parametrize(
    ("sizes", "p"),
    [
        ([100] * 4 + [3], [0.95] * 4 + [0.5]),
        ([100] * 4 + [3], [0.95] * 4 + [0.8]),
        ([100, 10], [0.95, 0.8]),
        ([30] * 9 + [2], [0.95] * 9 + [0.5]),
        ([2] * 10 + [30] * 90, [0.5] * 10 + [0.95] * 90),
        ([3, 7, 90], [0.7, 0.7, 0.97]),
    ],
)
def test_mean_per_class_covers_where_a_small_class_differs(sizes: list[int], p: list[float]) -> None:
    """The effective sample size alone holds the first in 75 %: all rows of the small class are right by chance."""
    rng, y = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
    ends = [mean_per_class(rng.random(len(y)) < np.array(p)[y], y).interval for _ in range(500)]
    assert np.mean([low <= np.mean(p) <= high for low, high in ends]) > 0.92


@pytest.mark.parametrize(
    ("sizes", "better", "worse"),
    [
        ([30] * 10, [0.1] * 10, [0.05] * 10),
        ([30] * 9 + [2], [0.05] * 9 + [0.5], [0.05] * 9 + [0.1]),
        ([100] * 4 + [3], [0.03] * 4 + [0.5], [0.03] * 4 + [0.0]),
        ([100, 5], [0.02, 0.2], [0.02, 0.1]),
    ],
)
def test_a_difference_per_class_covers(sizes: list[int], better: list[float], worse: list[float]) -> None:
    """Student's t alone holds the last in 79 %."""
    rng, y = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
    truth, held = np.mean(better) - np.mean(worse), []
    for _ in range(500):
        drawn = rng.random(len(y))
        difference = (drawn < np.array(better)[y]).astype(int) - (drawn > 1 - np.array(worse)[y])
        low, high = difference_per_class(difference, y)[1]
        held.append(low <= truth <= high)
    assert np.mean(held) > 0.92


def test_classes_of_one_size_have_the_interval_of_the_effective_sample_size() -> None:
    """So that sets with many large classes keep their narrow intervals."""
    y = np.repeat(np.arange(50), 20)
    right = np.random.default_rng(0).random(1000) < 0.97
    low, high = mean_per_class(right, y).interval
    plain_low, plain_high = share(right).interval
    assert high - low < 1.05 * (plain_high - plain_low)
