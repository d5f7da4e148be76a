"""Rounds of fine-tuning: how sure the comparison on held-out images is."""

import math

import numpy as np
import pytest

from evaluation.ranking.rounds import Arm, Round, probability, rounds_of


def arm(name: str, right: np.ndarray) -> Arm:
    right = np.atleast_2d(right).astype(bool)
    return Arm(name, (0.01,), right.mean(1), right, 1.0, 10)


def one_round(*arms: Arm, kept: int = 1) -> Round:
    return Round(arms, 10, kept, (0,))


@pytest.mark.parametrize(("models", "rounds"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)])
def test_rounds_halve_until_one_model_is_left(models: int, rounds: int) -> None:
    assert rounds_of(models) == rounds


def test_equal_models_are_a_coin_and_a_model_that_is_right_where_the_other_is_wrong_is_sure() -> None:
    half = np.arange(60) % 2 == 0
    assert probability([one_round(arm("a", half), arm("b", half))]) == 0.5
    assert probability([one_round(arm("a", half | True), arm("b", ~half & False))]) == 1


def test_the_probability_is_that_of_redrawn_images_paired_between_models() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random(80) < 0.7, rng.random(80) < 0.62
    margins = []
    for _ in range(20_000):
        rows = rng.integers(0, 80, 80)
        margins.append(a[rows].mean() - b[rows].mean())
    right = np.mean(np.greater(margins, 1e-9)) + 0.5 * np.mean(np.abs(margins) <= 1e-9)
    assert probability([one_round(arm("a", a), arm("b", b))]) == pytest.approx(right, abs=0.03)


def test_seeds_are_redrawn_too_so_that_one_lucky_seed_is_no_certainty() -> None:
    whole, none = np.ones(100), np.zeros(100)
    b = np.arange(100) < 45
    single = probability([one_round(arm("a", np.arange(100) < 99), arm("b", b))])
    lucky = probability([one_round(arm("a", np.stack([whole, none, whole])), arm("b", np.stack([b, b, b])))])
    assert single == 1 and lucky < 0.8  # (1/3)^3 + 3 (2/3) (1/3)^2 = 0.26 of the draws have at most one good seed


def test_dropped_models_count_in_their_last_round() -> None:
    rng = np.random.default_rng(1)
    a, near, far = rng.random(50) < 0.7, rng.random(50) < 0.68, np.zeros(50)
    first = Round((arm("a", a), arm("c", far), arm("b", near)), 5, 2, (0,))
    last = one_round(arm("a", a), arm("c", far))
    assert probability([first, last]) == pytest.approx(probability([one_round(arm("a", a), arm("b", near))]), abs=0.04)


def test_it_is_unknown_with_several_labels_per_image() -> None:
    one = Arm("a", (0.01,), np.array([0.5]), None, 1.0, 10)
    assert math.isnan(probability([one_round(one, one)]))


def test_a_diverged_model_is_below_all_others() -> None:
    gone = Arm("b", (), np.zeros(0), None, 1.0, 10)
    assert gone.value == -math.inf
    assert probability([one_round(arm("a", np.arange(10) < 5), gone)]) == 1
