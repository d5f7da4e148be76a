"""The level of chance against drawn pairs, and leader clustering against a plain loop."""

import numpy as np
import pytest

from sslkit.errors import UserError
from sslkit.numerics import near_copies
from sslkit.numerics.near_copies import chance_similarity, group_by_leaders


class Line:
    """Numbers that are near within 1."""

    def __init__(self, x: np.ndarray) -> None:
        self.x, self.leaders = x, np.empty(0)

    def nearest(self, rows: np.ndarray) -> np.ndarray:
        apart = np.abs(self.x[rows][:, None] - self.leaders)
        return np.where(apart.min(1) <= 1, apart.argmin(1), -1)

    def compare(self, rows: np.ndarray) -> np.ndarray:
        return np.abs(self.x[rows][:, None] - self.x[rows]) <= 1

    def add(self, rows: np.ndarray) -> None:
        self.leaders = np.concatenate([self.leaders, self.x[rows]])


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_members_are_near_their_representative_and_no_two_of_these_are(monkeypatch, block: int) -> None:
    monkeypatch.setattr(near_copies, "BLOCK", block)
    x = np.random.default_rng(0).uniform(0, 60, 300)
    order = np.random.default_rng(1).permutation(300)[:250]
    leader = group_by_leaders(order, 300, Line(x))
    assert (np.abs(x - x[leader]) <= 1).all() and (leader[leader] == leader).all()
    leaders = np.unique(leader[order])
    assert np.diff(np.sort(x[leaders])).min() > 1
    left_out = np.setdiff1d(np.arange(300), order)
    assert (leader[left_out] == left_out).all()
    first = order[0]
    assert leader[first] == first


@pytest.mark.parametrize("n", [100, 3000])
def test_less_than_one_unrelated_pair_is_expected_above_the_level(n: int) -> None:
    wrong = []
    for seed in range(10):
        x = np.random.default_rng(seed).normal(size=(n, 64))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        level = chance_similarity(lambda a, b, x=x: (x[a] * x[b]).sum(1), np.arange(n))
        cosine = x @ x.T
        wrong.append((cosine[np.triu_indices(n, 1)] > level).sum())
    assert np.mean(wrong) < 1.5


@pytest.mark.parametrize(("objects", "copies"), [(12, 10), (40, 10), (200, 2), (4, 30)])
def test_copies_among_the_pairs_do_not_move_the_level_below_them(objects: int, copies: int) -> None:
    same = np.repeat(np.arange(objects), copies)
    x = np.random.default_rng(0).normal(size=(objects, 64))[same]
    x += 0.05 * np.random.default_rng(1).normal(size=x.shape)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    level = chance_similarity(lambda a, b: (x[a] * x[b]).sum(1), np.arange(len(x)))
    pairs = np.triu_indices(len(x), 1)
    above = (x @ x.T)[pairs] > level
    assert (above != (same[pairs[0]] == same[pairs[1]])).sum() <= 4  # two objects of 2 copies are 4 pairs


def test_the_level_is_that_of_the_unrelated_pairs_alone() -> None:
    draws = np.random.default_rng(0)
    unrelated, copies = draws.normal(0, 1, 6600), draws.normal(9, 1, 540)  # the pairs of 12 x 10
    values = np.concatenate([unrelated, copies])
    level = chance_similarity(lambda a, b: values, np.arange(120))
    expected = 3.63  # of a normal distribution, beyond which 1 / 7140 of it lies
    assert abs(level - expected) < 0.2


def test_a_skewed_distribution_does_not_leave_its_own_tail_out() -> None:
    values = np.random.default_rng(0).exponential(size=200 * 199 // 2)
    level = chance_similarity(lambda a, b: values, np.arange(200))
    assert (values > level).mean() < 0.01


def test_equal_items_have_the_level_of_their_similarity() -> None:
    assert chance_similarity(lambda a, b: np.ones(len(a)), np.arange(40)) == 1


def test_too_few_items_are_an_error() -> None:
    with pytest.raises(UserError, match="31 images are too few"):
        chance_similarity(lambda a, b: a, np.arange(31))
