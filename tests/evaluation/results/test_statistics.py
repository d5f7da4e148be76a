"""Intervals against scipy, plain loops and simulated coverage."""

import numpy as np
import pytest
from scipy import stats

from evaluation.results import statistics
from evaluation.results.class_means import mean_per_class
from evaluation.results.p_values import holm, sign_flip
from evaluation.results.statistics import (
    bias_corrected,
    bootstrap_mean,
    difference_of_shares,
    jackknife,
    over_episodes,
    over_seeds,
    share,
)
from sslkit.errors import UserError


def test_share_is_scipys_wilson() -> None:
    right = np.arange(60) < 47
    oracle = stats.binomtest(47, 60).proportion_ci(method="wilson")
    assert share(right).interval == pytest.approx((oracle.low, oracle.high), abs=1e-12)


def test_over_seeds_is_scipys_t_interval() -> None:
    values = [0.71, 0.74, 0.69, 0.75, 0.72]
    oracle = stats.ttest_1samp(values, 0).confidence_interval()
    found = over_seeds(values)
    assert found.interval == pytest.approx((oracle.low, oracle.high), rel=1e-10)
    assert (found.value, found.n, found.kind) == (pytest.approx(np.mean(values)), 5, "t over 5 seeds")


def test_one_seed_has_no_interval_and_says_so() -> None:
    found = over_seeds([0.7])
    assert found.interval is None and found.kind == "one seed"


@pytest.mark.parametrize(("values", "message"), [([], "at least one"), ([0.1, float("nan")], "number 1 is nan")])
def test_over_seeds_refuses(values: list[float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        over_seeds(values)


def expanded(n: int) -> float:
    """The confidence level at which a plain percentile interval of n rows is the expanded one."""
    return 1 - 2 * stats.norm.cdf(-((n / (n - 1)) ** 0.5) * stats.t.ppf(0.975, n - 1))


@pytest.mark.parametrize("few", [True, False])
def test_bootstrap_of_a_mean_is_scipys_at_the_expanded_level(few: bool) -> None:
    rng = np.random.default_rng(0)
    values = (rng.random(400) < 0.7).astype(float) if few else rng.exponential(size=400)
    found = bootstrap_mean(values, n=20_000).interval
    options = {"n_resamples": 20_000, "method": "percentile", "rng": rng, "confidence_level": expanded(400)}
    oracle = stats.bootstrap((values,), np.mean, **options).confidence_interval
    error = values.std() / 20  # of which the ends of 20,000 draws vary by a few hundredths
    assert found == pytest.approx((oracle.low, oracle.high), abs=0.08 * error)


def test_a_mean_has_no_bias_and_the_jackknife_is_its_standard_error() -> None:
    right = np.random.default_rng(1).random(80) < 0.7
    found = bias_corrected(right, np.mean, np.ones((80, 1), bool), fewest=1)
    low, high = found.interval
    assert found.value == right.mean() and (low + high) / 2 == pytest.approx(right.mean(), abs=0.01)
    error = right.std(ddof=1) / 80**0.5
    assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, 79) * error, rel=0.02)


def test_without_enough_images_there_is_no_interval_but_how_many_it_takes() -> None:
    rows = np.random.default_rng(0).random(100)
    rare = np.stack([np.arange(100) < 2, np.arange(100) > 2], 1)
    found = bias_corrected(rows, np.mean, rare, fewest=5)
    assert found.interval is None and found.kind == "no interval, a class has 2 of 100 images: it takes about 250"
    few = bias_corrected(rows[:12], np.mean, np.ones((12, 1), bool), fewest=1)
    assert few.interval is None and few.kind == "no interval, 12 images: it takes about 30"


def test_the_order_of_rows_does_not_matter_but_the_seed_does() -> None:
    rng = np.random.default_rng(0)
    right, y = rng.random(200) < 0.6, rng.integers(0, 3, 200)
    order = rng.permutation(200)
    assert mean_per_class(right, y).interval == pytest.approx(
        mean_per_class(right[order], y[order]).interval, rel=1e-12
    )
    found = bootstrap_mean(right)
    assert found == bootstrap_mean(right[order])
    assert found.interval != bootstrap_mean(right, seed=1).interval


def test_blocks_of_draws_change_nothing_but_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=100)
    whole = bootstrap_mean(values, n=500)
    monkeypatch.setattr(statistics, "CELLS", 1000)
    assert bootstrap_mean(values, n=500) == whole


def test_rows_of_a_group_are_drawn_together() -> None:
    """Equal groups are as their means; five copies of a row say no more than one."""
    values = np.random.default_rng(0).normal(size=60)
    alone = bootstrap_mean(values, n=20_000, unit="rank")
    copied = bootstrap_mean(np.repeat(values, 5), n=20_000, unit="rank", groups=np.repeat(np.arange(60), 5))
    assert copied.interval == pytest.approx(alone.interval, rel=0.05) and copied.n == 300
    assert copied.kind == "bootstrap over 60 groups of images"


def test_the_difference_of_two_shares_is_newcombes_example() -> None:
    """Newcombe 1998, table II: 56/70 - 48/80, and 10/10 - 0/10, method 10."""
    cases = {(56, 70, 48, 80): (0.0524, 0.3339), (10, 10, 0, 10): (0.6075, 1.0)}
    for (a, n, b, m), ends in cases.items():
        first, second = share(np.arange(n) < a), share(np.arange(m) < b)
        difference = difference_of_shares(first, second)
        assert difference.interval == pytest.approx(ends, abs=5e-5) and difference.value == a / n - b / m


def test_numpys_global_generator_is_left_alone() -> None:
    before = np.random.get_state()[1].copy()
    bootstrap_mean(np.arange(50.0))
    assert (np.random.get_state()[1] == before).all()


@pytest.mark.parametrize("n", [8, 20])
def test_the_bootstrap_covers_95_percent_even_of_few_rows(n: int) -> None:
    """Three standard errors; plain percentiles reach 0.89 and 0.92. Each data set has a bootstrap seed of its own: with
    one for all, the error of the draws would not average out."""
    rows = np.random.default_rng(0).normal(size=(800, n))
    found = [bootstrap_mean(row, n=1000, seed=seed).interval for seed, row in enumerate(rows)]
    assert np.mean([low <= 0 <= high for low, high in found]) == pytest.approx(0.95, abs=0.023)


def test_the_jackknife_of_means_is_the_t_interval_of_block_means() -> None:
    blocks = np.random.default_rng(0).normal(size=(10, 7))
    without = [np.delete(blocks, g, 0).mean() for g in range(10)]
    oracle = stats.ttest_1samp(blocks.mean(1), 0).confidence_interval()
    found = jackknife(blocks.mean(), without, kind="k", n=70, unit="rank")
    assert found.interval == pytest.approx((oracle.low, oracle.high), rel=1e-10)


def test_holm_is_its_loop() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.random(7) ** 3
        adjusted, largest = np.empty(7), 0.0
        for rank, place in enumerate(sorted(range(7), key=lambda i: p[i])):
            largest = max(largest, (7 - rank) * p[place])
            adjusted[place] = min(largest, 1.0)
        assert holm(p) == pytest.approx(adjusted)


def test_a_bootstrap_of_nothing_to_draw_is_refused() -> None:
    with pytest.raises(UserError, match="at least two rows, not 1"):
        bootstrap_mean(np.ones(1))


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_a_fraction_that_never_varied_gets_scipys_clopper_pearson(p: float) -> None:
    oracle = stats.binomtest(int(40 * p), 40).proportion_ci(method="exact")
    values = np.full(40, p)
    for found in (
        over_episodes(values),
        bootstrap_mean(values),
        bias_corrected(values, np.mean, np.ones((40, 1), bool), fewest=1),
    ):
        assert found.interval == pytest.approx((oracle.low, oracle.high), abs=1e-9)
        assert found.value == p and found.kind.endswith("none of which varies: Clopper-Pearson on 40")
    assert bootstrap_mean(values, unit="distance").interval == (p, p)


def test_episodes_of_one_accuracy_between_keep_room_on_both_sides() -> None:
    low, high = over_episodes(np.full(30, 0.6)).interval
    oracle = stats.binomtest(18, 30).proportion_ci(method="exact")
    assert (low, high) == pytest.approx((oracle.low, oracle.high), rel=1e-9)


def test_intervals_of_fractions_stay_between_0_and_1() -> None:
    assert over_seeds([0.9, 1.0]).interval[1] == 1.0 and over_seeds([0.0, 0.1]).interval[0] == 0.0
    assert over_seeds([0.9, 1.0], unit="distance").interval[1] > 1.5
    assert over_episodes(np.array([1.0, 1.0, 0.8])).interval[1] == 1.0
    assert over_seeds([-0.1, 0.1]).interval[0] < -1  # differences are no fractions


def test_the_sign_flip_test_is_scipys_permutation_test() -> None:
    difference = np.array([0.1, 0.3, -0.05, 0.2])
    oracle = stats.permutation_test((difference,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip(difference) == pytest.approx(oracle.pvalue)
    assert [sign_flip(np.full(n, 0.1)) for n in (2, 3, 8)] == [1 / 2, 1 / 4, 1 / 128]
    assert sign_flip(np.zeros(4)) == 1.0
