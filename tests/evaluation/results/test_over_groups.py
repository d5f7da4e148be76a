"""Intervals and tests on images that come in groups: those of the groups, whatever their images say again."""

import numpy as np
import pytest
from scipy import stats

import evaluation
from evaluation.features.table import Features
from evaluation.results import store
from evaluation.results.class_means import mean_per_class
from evaluation.results.comparison import compare
from evaluation.results.measures import measure
from evaluation.results.over_groups import difference_over_groups, swap_groups
from evaluation.results.p_values import sign_flip
from evaluation.results.statistics import bias_corrected, share
from sslkit.numerics.wilson import Z95, effective_rows, units_of, wilson


def test_images_that_repeat_their_group_add_nothing() -> None:
    """Of G groups of equal images the variance between groups is p (1 - p) / (G - 1)."""
    right = np.random.default_rng(0).random(30) < 0.7
    groups = np.repeat(np.arange(30), 10)
    factor = (Z95 / stats.t.ppf(0.975, 29)) ** 2
    assert effective_rows(np.repeat(right, 10), groups) == pytest.approx(29 * factor)
    assert effective_rows(np.ones(300), groups) == pytest.approx(30 * factor)
    alike = np.tile([1.0, 1.0, 0.0, 1.0], 2)  # as often right in both groups: no variance between them
    assert effective_rows(alike, np.repeat([0, 1], 4)) == pytest.approx(8 * (Z95 / 12.706) ** 2, rel=1e-3)
    estimate = share(np.repeat(right, 10), groups)
    assert estimate.interval == pytest.approx(wilson(right.mean(), 29 * factor))
    assert (estimate.n, estimate.kind) == (300, "wilson over 30 groups of images")


def test_without_groups_or_with_groups_of_one_nothing_changes() -> None:
    right = np.random.default_rng(1).random(50) < 0.6
    y = np.arange(50) % 5
    assert share(right) == share(right, np.arange(50)) == share(right, np.zeros(50))
    assert mean_per_class(right, y) == mean_per_class(right, y, np.arange(50))


def test_a_mean_over_classes_is_no_surer_than_its_groups() -> None:
    rng = np.random.default_rng(2)
    first = rng.random(24) < 0.7
    right, groups = np.repeat(first, 6), np.repeat(np.arange(24), 6)
    y = groups % 3
    over_images, over_groups = mean_per_class(right, y), mean_per_class(right, y, groups)
    assert over_groups.value == over_images.value and over_groups.kind == "wilson over 24 groups of images"
    widths = [np.ptp(estimate.interval) for estimate in (over_images, over_groups)]
    assert widths[1] > 1.8 * widths[0]


def test_average_precision_draws_whole_groups() -> None:
    """The jackknife over groups of equal images is that over one image of each."""
    rng = np.random.default_rng(3)
    rows = rng.random(60)
    members = np.ones((60, 1), bool)
    alone = bias_corrected(rows, np.mean, members, fewest=20)
    groups = np.repeat(np.arange(60), 4)
    repeated = bias_corrected(np.repeat(rows, 4), np.mean, np.ones((240, 1), bool), fewest=20, groups=groups)
    assert repeated.interval == pytest.approx(alone.interval) and repeated.kind == "jackknife over 60 groups of images"
    few = bias_corrected(np.repeat(rows[:20], 4), np.mean, np.ones((80, 1), bool), fewest=1, groups=groups[:80])
    assert few.interval is None and few.kind.startswith("no interval, 20 groups")


def test_the_difference_is_that_of_the_means_of_groups() -> None:
    """Of groups of one size: Student's t interval and the sign-flip test on the means of groups, by scipy."""
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(12), 5)
    difference = rng.integers(-1, 2, 60) + np.repeat(rng.integers(0, 2, 12), 5)
    tested = difference_over_groups(difference / 60, np.full(60, 1 / 60), groups, 0)
    means = difference.reshape(12, 5).mean(1)
    low, high = stats.ttest_1samp(means, 0).confidence_interval(0.95)
    assert tested["difference"] == pytest.approx(means.mean())
    assert tested["interval"] == pytest.approx((max(low, -1), min(high, 1)))
    oracle = stats.permutation_test((means, 0 * means), lambda a, b: np.mean(a - b), permutation_type="samples")
    assert tested["p"] == pytest.approx(oracle.pvalue) == sign_flip(means)


def test_many_groups_are_swapped_at_random() -> None:
    sums = np.random.default_rng(5).normal(0.25, 1, 60)
    assert swap_groups(sums, 0) == swap_groups(sums, 0)
    assert swap_groups(sums, 0) == pytest.approx(stats.ttest_1samp(sums, 0).pvalue, abs=0.01)
    assert swap_groups(np.zeros(60), 0) == 1


def features(n: int, seed: int, groups: np.ndarray | None) -> Features:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = rng.normal(0, 1, (n, 6)).astype(np.float32) + 0.4 * y[:, None]
    ids = np.array([f"{seed}-{row}" for row in range(n)])
    return Features(x, y, ["a", "b"], f"digest {seed}", ids, groups=groups)


@pytest.mark.parametrize("metric", ["top1", "mean_per_class"])
def test_protocols_and_their_comparison_are_over_groups(metric: str, tmp_path) -> None:
    groups = np.arange(80) // 8
    train, test = features(80, 0, groups), features(80, 1, groups)
    test = Features(**{**vars(test), "metric": metric})
    knn, linear = evaluation.knn(train, test, k=5), evaluation.linear_probe(train, test, c=1.0)
    for result in (knn, linear):
        assert result.kind == "wilson over 10 groups of images" and result.groups.tolist() == groups.tolist()
        store.append(tmp_path, result)
    y = test.y if metric == "mean_per_class" else None
    difference = compare(knn, linear, labels=y)
    assert difference.test == "randomisation over groups"
    assert compare(*store.read(tmp_path), labels=y) == difference
    assert all(result.groups is None for result in store.read(tmp_path, outcomes=False))


def test_several_labels_are_over_groups() -> None:
    rng = np.random.default_rng(6)
    scores, y = rng.random((240, 2)), np.where(rng.random((240, 2)) < 0.5, 1, -1)
    estimate, others, _ = measure(scores, y, "map11", np.repeat(np.arange(60), 4))
    assert {estimate.kind, others["map"].kind} == {"jackknife over 60 groups of images"}


def test_quick_accuracies_count_groups_as_if_their_images_were_alike() -> None:
    assert units_of({"n": 80, "units": 8}) == 8 and units_of({"n": 80}) == 80 and units_of({}) == 0
