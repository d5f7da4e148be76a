"""Rounding decides neither which setting is chosen nor which rank a score has."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from evaluation.learners.strengths import Tried, best_of
from evaluation.learners.strengths import best as best_value
from evaluation.results.choice import equal_scores, first_largest, highest_of, last_least, level_scores, lowest_of
from evaluation.tuning.outcomes import best

UP = 1 + 2.0**-52


def test_what_differs_by_rounding_is_equal_and_by_more_is_not() -> None:
    values = [0.1 + 0.2, 0.3, 0.3 - 1e-7, np.nan]
    assert highest_of(values).tolist() == [0, 1]
    assert lowest_of([0.5, 0.5 * UP, 0.5001, np.nan]).tolist() == [0, 1]
    assert lowest_of([1e-16, 0.0, 1e-3]).tolist() == [0, 1]
    assert lowest_of([np.inf, np.nan]).tolist() == [0, 1]


@pytest.mark.parametrize("scale", [1e-20, 1.0, -3.0, 1e20])
def test_scores_are_levelled_by_their_scale(scale: float) -> None:
    scores = scale * np.array([2.0, 1.0, np.nan, 1.0 * UP, 2.0 * UP * UP, 1.0001])
    found = level_scores(scores)
    assert found[1] == found[3] and found[0] == found[4] and found[5] == scores[5] and np.isnan(found[2])
    assert np.allclose(found, scores, rtol=1e-12, atol=0, equal_nan=True)
    assert level_scores([]).shape == (0,) and not level_scores([0.0, 0.0]).any()


@pytest.mark.parametrize("turned", [1, -1])
def test_of_equal_strengths_the_strongest_penalty_is_chosen(turned: int) -> None:
    """The third has the highest accuracy and the lowest loss by one bit, or by nothing at all."""
    rows = [(0.01, 0.7, 0.2), (0.1, 0.8, 0.3), (1.0, 0.8 * UP, 0.3 / UP), (10.0, 0.8, 0.4)][::turned]
    tried = [Tried(SimpleNamespace(c=c), value, loss) for c, value, loss in rows]
    assert tried[best_of(tried)].probe.c == 0.1
    assert tried[best_of([replace(one, loss=float("nan")) for one in tried])].probe.c == 0.1


def test_of_equal_heads_the_largest_decay_is_chosen_then_the_lowest_rate() -> None:
    values, losses = [0.5, 0.5 * UP, 0.5, 0.4], [1.0, 1.0, 1.0 / UP, 0.1]
    for penalty, chosen in (([(0.0, -1), (0.1, -1), (0.0, -2), (9, 9)], 1), ([(0, -3), (0, -2), (0, -1), (9, 9)], 2)):
        assert best_value(values, losses.__getitem__, penalty) == chosen


def test_of_equal_trials_the_largest_decay_is_chosen_then_the_lowest_rates() -> None:
    def record(value: float, loss: float, decay: float, lr: float, head: float | None = None) -> dict:
        return {"diverged": False, "value": value, "loss": loss, "weight_decay": decay, "lr": lr, "head_lr": head}

    a, b, c = record(0.8 * UP, 0.3, 0.0, 0.1), record(0.8, 0.3 * UP, 1e-3, 0.1), record(0.8, 0.3 / UP, 1e-3, 0.01)
    assert best([a, b], "") == 1 and best([b, a], "") == 0
    assert best([a, b, c], "") == 2 and best([c, b, a], "") == 0
    assert best([record(0.8, 0.3, 0, 0.1, 0.5), record(0.8, 0.3, 0, 0.1, 0.2)], "") == 1
    assert best([a, record(0.9, 0.9, 0, 0.1), {"diverged": True}], "") == 1


def test_the_first_of_the_largest() -> None:
    scores = torch.tensor(
        [[1.0, 1.0 + 1e-12, 0.5], [0.0, 1.0, 1.0 - 1e-12], [3.0, 2.0, 3.0], [-1.0, -2.0, 0.0]], dtype=torch.float64
    )
    assert first_largest(scores, 1e-9).tolist() == [0, 1, 0, 2]
    assert first_largest(torch.tensor([[1.0, 1.1]]), 0.0).tolist() == [1]


@pytest.mark.parametrize(
    ("values", "rounding", "expected"),
    [
        ([1.0, 1.0, 2.0], [0.0] * 3, 1),
        ([1.0, 1.0 + 1e-9, 2.0], [1e-8, 1e-10, 0.0], 1),  # the first is not known to be less
        ([1.0, 1.0 + 1e-9, 2.0], [1e-10, 1e-10, 0.0], 0),
        ([0.0, 0.0], [0.1, 0.1], 1),
        ([3.0, 1.0, 2.0], [1e-3] * 3, 1),
    ],
)
def test_the_last_that_may_be_the_least(values: list[float], rounding: list[float], expected: int) -> None:
    assert last_least(values, rounding) == expected


def test_levelling_stands_an_outlier_and_a_zero_that_is_not_quite_one() -> None:
    assert level_scores([1.0, 1 + 1e-6, 1e6]).tolist() == [1.0, 1 + 1e-6, 1e6]
    assert level_scores([0.0, 1e-17, 0.5]).tolist() == [0.0, 0.0, 0.5]


def test_scores_that_rounding_parts_are_equal() -> None:
    assert equal_scores(1.0, 1.0 + 1e-12) and equal_scores(0.0, 0.0) and equal_scores(-1e30, -1e30 - 1e15)
    assert not equal_scores(1.0, 1.0 + 1e-6) and not equal_scores(0.0, 1e-300)
