"""Paired tests against scipy, plain loops and simulation; what may not be paired is refused."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest
from scipy import stats

from evaluation.results.class_means import mean_per_class
from evaluation.results.comparison import (
    Comparison,
    compare,
    compare_all,
    mcnemar,
    randomisation,
)
from evaluation.results.power import detectable_mean, detectable_share
from evaluation.results.result import Result, rows_digest
from evaluation.results.statistics import Estimate, bootstrap_mean, over_episodes, share
from sslkit.errors import UserError


def result(right: np.ndarray, model: str, **fields) -> Result:
    given = {"protocol": "knn", "recipe": "k=20", "metric": "top1", "data": "digits", "paired_on": "rows", **fields}
    return Result.from_estimate(share(right), model=model, outcomes=right, **given)


def pair(n: int = 1000, lift: float = 0.05, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two models that are right on 70 % of the images together; a alone on 2.5 % and `lift` more, b alone on 2.5 %."""
    kind = np.random.default_rng(seed).choice(4, size=n, p=[0.7, 0.025 + lift, 0.025, 0.25 - lift])
    return kind <= 1, (kind == 0) | (kind == 2)


def test_mcnemar_is_its_binomial_sum() -> None:
    a, b = pair(200)
    only_a, only_b = int((a & ~b).sum()), int((~a & b).sum())
    m, k = only_a + only_b, max(only_a, only_b)
    tail = sum(comb(m, i) for i in range(k, m + 1)) / 2**m
    assert mcnemar(a, b) == pytest.approx(min(2 * tail, 1), rel=1e-9)
    assert mcnemar(a, b) == mcnemar(b, a)
    assert mcnemar(a, a) == 1.0


def test_images_get_mcnemar_and_a_paired_interval() -> None:
    a, b = pair()
    found = compare(result(a, "byol"), result(b, "simclr"))
    assert (found.a, found.b, found.test, found.n) == ("byol", "simclr", "McNemar", 1000)
    assert found.difference == pytest.approx(a.mean() - b.mean())
    error = (a.astype(float) - b).std(ddof=1) / 1000**0.5
    assert found.interval == pytest.approx(
        (found.difference - 1.96 * error, found.difference + 1.96 * error), abs=0.002
    )
    assert found.p == mcnemar(a, b)


def test_the_sign_follows_the_order_and_the_verdict_does_not() -> None:
    a, b = (result(x, name) for x, name in zip(pair(lift=0.15), ("byol", "simclr"), strict=True))
    one, other = compare(a, b), compare(b, a)
    assert one.difference == -other.difference > 0 and one.p == other.p < 0.05
    assert one.verdict.startswith("byol is better than simclr by ")
    assert other.verdict.startswith("byol is better than simclr by ")
    assert "McNemar p < 0.001" in one.verdict


def test_the_verdict_without_a_difference_says_what_would_be_missed() -> None:
    a, b = pair(lift=0.0)
    found = compare(result(a, "byol"), result(b, "simclr"))
    assert found.p > 0.05
    assert found.verdict.startswith("no difference seen between byol and simclr")
    assert f"differences under {100 * found.detectable:.1f} points would likely be missed" in found.verdict


def test_the_better_model_comes_first_also_where_no_difference_is_seen() -> None:
    a, b = pair(lift=0.0)
    a, b = (a, b) if a.mean() < b.mean() else (b, a)
    worse_first = compare(result(a, "worse"), result(b, "better"))
    assert worse_first.difference < 0 and worse_first.p > 0.05
    assert worse_first.verdict == compare(result(b, "better"), result(a, "worse")).verdict
    assert "between better and worse (" in worse_first.verdict and "(-" not in worse_first.verdict


def test_leaky_results_are_marked_in_the_verdict() -> None:
    a, b = pair()
    found = compare(result(a, "byol", leaky=True), result(b, "simclr"))
    assert found.leaky and "chosen on test data" in found.verdict


def test_identical_outcomes_leave_room_for_what_was_not_drawn() -> None:
    a, _ = pair(300)
    found = compare(result(a, "x"), result(a, "y"))
    assert found.p == 1.0 and found.difference == 0
    assert found.interval[1] == pytest.approx(1 - 0.025 ** (1 / 300)) and found.interval[0] == -found.interval[1]
    assert 0 < found.detectable < 0.05


@pytest.mark.parametrize(("psi", "n"), [(0.1, 1000), (0.3, 400), (0.01, 300)])
def test_the_detectable_difference_is_detected_four_times_in_five(psi: float, n: int) -> None:
    d = detectable_share(psi, n)
    psi = max(psi, d)
    rng = np.random.default_rng(0)
    only_a, only_b, _ = rng.multinomial(n, [(psi + d) / 2, (psi - d) / 2, 1 - psi], size=3000).T
    p = np.minimum(2 * stats.binom.sf(np.maximum(only_a, only_b) - 1, only_a + only_b, 0.5), 1)
    assert (p < 0.05).mean() == pytest.approx(0.8, abs=0.09)  # the exact test is conservative, the formula is normal


def test_no_difference_can_be_seen_in_three_images() -> None:
    assert detectable_share(0.3, 3) is None


def test_the_paired_interval_covers_95_percent() -> None:
    rng = np.random.default_rng(0)
    covered = []
    for seed in range(600):
        difference = rng.choice([1, -1, 0], size=300, p=[0.12, 0.06, 0.82])
        low, high = bootstrap_mean(difference, seed=seed).interval
        covered.append(low <= 0.06 <= high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.027)


def episodes(accuracy: np.ndarray, model: str) -> Result:
    fields = {"protocol": "few_shot", "recipe": "5-way 1-shot", "metric": "accuracy", "paired_on": "table"}
    return Result.from_estimate(over_episodes(accuracy), model=model, outcomes=accuracy, **fields)


def test_episodes_get_scipys_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    shared = rng.normal(0.6, 0.1, 500)
    a, b = shared + rng.normal(0.01, 0.05, 500), shared + rng.normal(0, 0.05, 500)
    found, oracle = compare(episodes(a, "x"), episodes(b, "y")), stats.ttest_rel(a, b)
    interval = oracle.confidence_interval()
    assert (found.test, found.p) == ("paired t", pytest.approx(oracle.pvalue, rel=1e-9))
    assert found.interval == pytest.approx((interval.low, interval.high), rel=1e-9)


def test_the_detectable_mean_is_detected_four_times_in_five() -> None:
    rng = np.random.default_rng(0)
    smallest = np.array([detectable_mean(row) for row in rng.normal(0, 0.1, (1500, 60))])
    p = stats.ttest_1samp(rng.normal(0, 0.1, (1500, 60)) + smallest[:, None], 0, axis=1).pvalue
    assert (p < 0.05).mean() == pytest.approx(0.8, abs=0.04)


def test_episodes_without_any_difference_are_no_evidence() -> None:
    a = np.random.default_rng(0).random(50)
    found = compare(episodes(a, "x"), episodes(a.copy(), "y"))
    assert found.p == 1.0 and "no difference" in found.verdict


def macro(right: np.ndarray, y: np.ndarray, model: str) -> Result:
    fields = {"protocol": "linear", "recipe": "lbfgs", "metric": "mean_per_class", "paired_on": "rows"}
    return Result.from_estimate(mean_per_class(right, y), model=model, outcomes=right, **fields)


def test_mean_per_class_weighs_images_by_class() -> None:
    y = np.repeat([0, 1], [900, 100])
    rng = np.random.default_rng(0)
    b = rng.random(1000) < 0.5
    a = np.where(y == 1, True, b)  # better on the rare class only
    found = compare(macro(a, y, "x"), macro(b, y, "y"), labels=y)
    assert found.difference == pytest.approx((1 - b[y == 1].mean()) / 2)
    assert found.test == "randomisation" and found.p < 0.001
    with pytest.raises(UserError, match=r"labels=test\.y"):
        compare(macro(a, y, "x"), macro(b, y, "y"))
    with pytest.raises(UserError, match="belong to another result"):
        compare(macro(a, y, "x"), macro(b, y, "y"), labels=rng.permutation(y))


def test_a_difference_that_never_varies_has_the_interval_of_its_smallest_classes() -> None:
    y, right = np.repeat([0, 1], [1000, 3]), np.ones(1003, bool)
    low, high = compare(macro(right, y, "x"), macro(right.copy(), y, "y"), labels=y).interval
    assert high - low > 2 * (1 - 0.025 ** (1 / 12)) - 1e-6


def test_the_interval_by_class_covers_95_percent_with_a_small_class_too() -> None:
    """A bootstrap within the classes holds this difference in 76 %: mostly none of the four images differs."""
    rng, y, held = np.random.default_rng(0), np.repeat([0, 1], [500, 4]), []
    for _ in range(400):
        which = rng.choice(3, 504, p=[0.93, 0.05, 0.02])  # both are right, a alone, b alone
        a, b = which != 2, which != 1
        low, high = compare(macro(a, y, "x"), macro(b, y, "y"), labels=y).interval
        held.append(low <= 0.03 <= high)
    assert np.mean(held) > 0.93


def test_what_is_detectable_by_class_is_that_of_a_mean_and_more_where_a_class_is_small() -> None:
    a, b = pair(300, 0.05, seed=3)
    found = [compare(macro(a, y, "x"), macro(b, y, "y"), labels=y) for y in (np.zeros(300), np.arange(300) > 295)]
    error = np.std(a.astype(int) - b.astype(int), ddof=1) / 300**0.5
    assert found[0].detectable == pytest.approx((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * error, rel=1e-6)
    assert found[1].detectable > 3 * found[0].detectable
    y = np.zeros(300)
    assert compare(macro(a, y, "x"), macro(a.copy(), y, "y"), labels=y).detectable is None


def test_the_randomisation_of_one_class_is_mcnemar() -> None:
    for lift in (0.0, 0.02, 0.05):
        a, b = pair(300, lift, seed=3)
        p = randomisation(a.astype(int) - b.astype(int), np.zeros(300), seed=0)
        assert p == pytest.approx(mcnemar(a, b), abs=0.012)


def test_all_pairs_are_adjusted_by_holm() -> None:
    a, b = pair(lift=0.04)
    c = np.random.default_rng(9).random(1000) < 0.5
    found = compare_all([result(a, "a"), result(b, "b"), result(c, "c")])
    assert [(one.a, one.b) for one in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    ordered = sorted(found, key=lambda one: one.p)
    expected = np.maximum.accumulate([min((3 - i) * one.p, 1) for i, one in enumerate(ordered)])
    assert [one.p_adjusted for one in ordered] == pytest.approx(expected)
    assert all("Holm-adjusted p (3 pairs)" in one.verdict for one in found)
    with pytest.raises(UserError, match="at least 2 results"):
        compare_all([result(a, "a")])


def test_results_of_other_rows_are_refused_and_both_are_named() -> None:
    a, b = pair()
    with pytest.raises(UserError, match=r"byol knn \(1,000 images of digits, rows one\).*clipart, rows two.*paired"):
        compare(result(a, "byol", paired_on="one"), result(b, "simclr", data="clipart", paired_on="two"))
    assert compare(result(a, "x", paired_on="one"), result(b, "y", paired_on="two"), paired=True).n == 1000


def test_two_models_pair_by_the_names_of_the_images() -> None:
    a, b = pair(20)
    ids, y = np.array([f"{i}.png" for i in range(20)]), np.arange(20) % 3
    one = result(a, "x", paired_on=rows_digest(ids, y))
    assert compare(one, result(b, "y", paired_on=rows_digest(ids, y))).n == 20
    with pytest.raises(UserError, match="same order"):
        compare(one, result(b, "y", paired_on=rows_digest(ids[::-1], y)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outcomes": None}, r"evaluation\.store\.read"),
        ({"metric": "map11"}, "one metric at a time"),
        ({"outcomes": np.ones(5, bool)}, "cannot pair"),
        ({"value": 0.123}, "has top1 0.1230"),
        ({"paired_on": ""}, "rows without a digest"),
        ({"unit": "distance"}, "accuracies"),
    ],
)
def test_what_cannot_be_compared(change: dict, message: str) -> None:
    a, b = pair()
    with pytest.raises(UserError, match=message):
        compare(result(a, "x"), replace(result(b, "y"), **change))


def test_two_protocols_of_one_model_are_told_apart() -> None:
    a, b = pair()
    found = compare(result(a, "byol"), result(b, "byol", protocol="linear"))
    assert (found.a, found.b) == ("byol knn", "byol linear")
    assert '"verdict": ' in found.to_json()


def test_real_digits_nearest_neighbours_beat_nearest_centroids() -> None:
    from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

    from sslkit import open_images

    train, test = (open_images("digits", split=split) for split in ("train", "test"))
    x, q = (images.pixels.reshape(len(images), -1).astype(float) for images in (train, test))
    one, other = KNeighborsClassifier(5).fit(x, train.labels), NearestCentroid().fit(x, train.labels)
    a, b = (model.predict(q) == test.labels for model in (one, other))
    found = compare(result(a, "5 neighbours"), result(b, "centroids"))
    assert found.p < 0.001 and found.verdict.startswith("5 neighbours is better than centroids by ")
    assert Estimate(found.difference, found.interval).interval[0] > 0.03


@pytest.mark.parametrize("paired_on", ["other", ""])
def test_episodes_that_were_drawn_apart_are_no_pairs_whatever_is_asserted(paired_on: str) -> None:
    a, b = np.random.default_rng(0).random((2, 50))
    with pytest.raises(UserError, match=r"drawn separately.*draw_episodes"):
        compare(episodes(a, "x"), replace(episodes(b, "y"), paired_on=paired_on), paired=True)
    assert compare(episodes(a, "x"), episodes(b, "y"), paired=True).n == 50


def test_two_seeds_are_no_proof() -> None:
    found = compare(episodes(np.array([0.8, 0.9]), "x"), episodes(np.array([0.7, 0.8]), "y"))
    assert (found.test, found.p, found.interval, found.detectable) == ("sign-flip", 0.5, None, None)
    assert found.verdict == (
        "x is ahead of y by 10.0 points (no interval: 2 pairs are too few), which may be chance: sign-flip p = 0.50"
    )
    assert '"interval": null' in found.to_json()


def test_five_pairs_get_a_t_test_and_four_do_not() -> None:
    a, b = np.array([0.8, 0.9, 0.7, 0.85, 0.9]), np.array([0.7, 0.85, 0.66, 0.8, 0.83])
    five, four = (compare(episodes(a[:n], "x"), episodes(b[:n], "y")) for n in (5, 4))
    assert five.test == "paired t" and five.interval is not None
    assert (four.test, four.interval, four.p) == ("sign-flip", None, 1 / 8)


def test_pairs_that_differ_by_the_same_but_for_rounding_get_the_exact_p() -> None:
    b = np.arange(8) / 10
    found = compare(episodes(b + 0.1, "x"), episodes(b, "y"))
    assert (found.p, found.interval) == (1 / 128, None) and np.ptp((b + 0.1) - b) > 0
    assert found.verdict.startswith(
        "x is better than y by 10.0 points (no interval: the 8 pairs all differ by the same"
    )


def test_images_that_all_differ_alike_leave_room_too() -> None:
    right, room = np.ones(40, bool), 1 - 0.025 ** (1 / 40)
    assert compare(result(right, "x"), result(~right, "y")).interval == pytest.approx((1 - room, 1))
    assert compare(result(~right, "x"), result(right, "y")).interval == pytest.approx((-1, room - 1))
    y = np.arange(40) % 2
    low, high = compare(macro(y == 2, y, "x"), macro(y == 1, y, "y"), labels=y).interval
    assert low + high == pytest.approx(-1) and 0.08 < high - low < 0.12


def test_a_difference_of_rounding_is_no_lead() -> None:
    """The same accuracies in another order: their means differ by the last bit."""
    a, b = np.array([0.1, 0.7, 0.3, 0.2]), np.array([0.3, 0.1, 0.2, 0.7 + 2.0**-52])
    found = Comparison("a", "b", "top1", float(a.mean() - b.mean()), None, 1.0, "sign-flip", 4, None)
    assert found.difference != 0 and "ahead" not in found.verdict
