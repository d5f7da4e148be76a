"""Agreement over several tasks, and of one metric less another, from the same redrawn models."""

import math

import numpy as np
import pytest

from evaluation.ranking.truth.agreement import agreement, weighted_tau
from evaluation.ranking.truth.paired_agreement import TAU, difference, over_tasks
from sslkit.errors import UserError

NAMES = [f"model {k:02d}" for k in range(12)]
RNG = np.random.default_rng(0)
TRUTH = dict(zip(NAMES, RNG.random(12), strict=True))
NEAR = {name: value + 0.2 * RNG.random() for name, value in TRUTH.items()}
FAR = dict(zip(NAMES, RNG.random(12), strict=True))
REVERSED = {name: -value for name, value in TRUTH.items()}


@pytest.mark.parametrize("measure", [TAU, "weighted tau (ITM)", "regret@1"])
def test_one_task_is_what_agreement_says(measure: str) -> None:
    (expected,) = agreement(TRUTH, NEAR, measures=[measure], n=200)
    found = over_tasks([(TRUTH, NEAR)], measure, n=200)
    assert found.value == pytest.approx(expected.value) and found.interval == pytest.approx(expected.interval)
    assert (found.name, found.n) == (measure, 12)


def test_a_perfect_order_is_1_and_the_reverse_minus_1() -> None:
    found = over_tasks([(TRUTH, TRUTH), (NEAR, NEAR)], n=100)
    assert found.value == pytest.approx(1) and found.interval == pytest.approx((1, 1))
    assert over_tasks([(TRUTH, TRUTH)], "regret@1", n=100).value == 0
    assert over_tasks([(TRUTH, REVERSED)], n=100).value < -0.9
    cost = max(TRUTH.values()) - min(TRUTH.values())
    assert over_tasks([(TRUTH, REVERSED)], "regret@1", n=10).value == pytest.approx(cost)


def test_tasks_count_the_same() -> None:
    found = over_tasks([(TRUTH, NEAR), (TRUTH, FAR)], n=50).value
    alone = [weighted_tau(TRUTH, one) for one in (NEAR, FAR)]
    assert found == pytest.approx(np.mean(alone))
    regret = over_tasks([(TRUTH, NEAR), (TRUTH, FAR)], "regret@1", n=50).value
    assert regret == pytest.approx(
        np.mean([agreement(TRUTH, one, measures=["regret@1"], n=0)[0].value for one in (NEAR, FAR)])
    )


def test_a_difference_is_paired() -> None:
    same = difference([(TRUTH, NEAR, NEAR)], n=100)
    assert same.value == 0 and same.interval == (0, 0)
    found = difference([(TRUTH, NEAR, FAR), (TRUTH, TRUTH, REVERSED)], n=200)
    alone = [weighted_tau(TRUTH, NEAR) - weighted_tau(TRUTH, FAR), 1 - weighted_tau(TRUTH, REVERSED)]
    assert found.value == pytest.approx(np.mean(alone)) and found.interval[0] > 0
    back = difference([(TRUTH, FAR, NEAR), (TRUTH, REVERSED, TRUTH)], n=200)
    assert back.value == pytest.approx(-found.value) and back.interval[1] < 0


def test_a_model_counts_where_all_is_known() -> None:
    some = {name: NEAR[name] for name in NAMES[:7]}
    known = {name: TRUTH[name] for name in NAMES[:7]}
    found = over_tasks([(TRUTH, some)], n=100)
    assert found.n == 7 and found.value == pytest.approx(weighted_tau(known, some))
    assert difference([(TRUTH, NEAR, some)], n=10).n == 7


def test_what_has_no_value_is_nan() -> None:
    alike = dict.fromkeys(NAMES, 1.0)
    for found in (over_tasks([(TRUTH, alike)], n=10), over_tasks([(TRUTH, NEAR), (TRUTH, {})], n=10)):
        assert math.isnan(found.value) and found.interval is None
    assert over_tasks([(TRUTH, {})], n=10).n == 0
    two = {name: TRUTH[name] for name in NAMES[:2]}
    assert over_tasks([(two, two)], n=10).interval is None


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="there is no measure of agreement 'regret'"):
        over_tasks([(TRUTH, NEAR)], "regret")
    with pytest.raises(UserError, match="at least one task"):
        over_tasks([])
