"""Rounds of successive halving."""

import math

import numpy as np
import pytest

from evaluation.ranking.choice.rounds import Arm, rounds_of


@pytest.mark.parametrize(("models", "rounds"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)])
def test_rounds_halve_until_one_model_is_left(models: int, rounds: int) -> None:
    assert rounds_of(models) == rounds


def test_a_diverged_model_is_below_all() -> None:
    assert Arm("c", (), np.zeros(0), None, 1.0, 10).value == -math.inf
    assert Arm("a", (0.01,), np.array([0.8, 0.6]), None, 1.0, 10).value == pytest.approx(0.7)
