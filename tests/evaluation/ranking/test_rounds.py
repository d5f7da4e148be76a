"""Rounds of successive halving."""

import math

import numpy as np
import pytest

from evaluation.ranking.rounds import Arm, Round, rounds_of


@pytest.mark.parametrize(("models", "rounds"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)])
def test_rounds_halve_until_one_model_is_left(models: int, rounds: int) -> None:
    assert rounds_of(models) == rounds


def test_dropped_models_are_those_after_the_kept_and_a_diverged_one_is_below_all() -> None:
    arms = [Arm(name, (0.01,), np.array([value]), None, 1.0, 10) for name, value in (("a", 0.8), ("b", 0.6))]
    gone = Arm("c", (), np.zeros(0), None, 1.0, 10)
    assert Round((*arms, gone), 10, 1, (0,)).dropped == (arms[1], gone)
    assert gone.value == -math.inf
