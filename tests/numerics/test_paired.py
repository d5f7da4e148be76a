"""The interval of a difference on the same images, beside Student's t of scipy and the bound of what never varies."""

import numpy as np
import pytest
from scipy import stats

from sslkit.numerics.paired import Paired, pair


def test_single_images_have_the_interval_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.random(80) < 0.6, rng.random(80) < 0.7
    gain = pair(after, before)
    ends = stats.ttest_rel(after.astype(float), before.astype(float)).confidence_interval(0.95)
    assert (gain.low, gain.high) == pytest.approx(tuple(ends)) and gain.mean == pytest.approx(
        after.mean() - before.mean()
    )
    assert (gain.n, gain.units) == (80, 80)
    whole = pair(after, before, np.arange(80))
    assert whole == gain, "each image is a group"


def test_images_of_a_group_count_once() -> None:
    after, before = np.repeat([1, 0, 1, 1], 5), np.repeat([0, 0, 1, 0], 5)
    gain, alone = pair(after, before, np.repeat(np.arange(4), 5)), pair([*after[::5]] @ np.eye(4), before[::5])
    assert (gain.mean, gain.low, gain.high) == pytest.approx((alone.mean, alone.low, alone.high)) and gain.units == 4


def test_what_never_varies_has_an_interval_and_one_group_has_none() -> None:
    gain = pair(np.ones(50), np.ones(50))
    assert gain.mean == 0 and gain.high == -gain.low == pytest.approx(stats.beta.ppf(0.975, 1, 50))
    assert pair(np.ones(5), np.zeros(5), np.zeros(5)) is None is pair(np.ones(1), np.ones(1))
    assert str(Paired(0.012, -0.003, 0.027, 50, 50)) == "+1.2 points (-0.3 to 2.7)"
