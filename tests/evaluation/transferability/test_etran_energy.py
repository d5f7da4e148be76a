"""ETran's energy part against a loop over images and columns."""

import math

import numpy as np
import pytest

import evaluation
from evaluation.transferability import etran_energy
from sslkit.errors import UserError


def task(n: int = 130, d: int = 7, c: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % c)
    return 0.4 * (rng.normal(size=(c, d))[y] + rng.normal(size=(n, d))), y


def energy_loop(x: np.ndarray, percent: float, largest: bool = False) -> float:
    energies = sorted((math.log(sum(math.exp(value) for value in row)) for row in x), reverse=largest)
    k = max(1, int(percent * 10) * len(x) // 1000)
    return sum(energies[:k]) / k


@pytest.mark.parametrize(("n", "percent"), [(130, 0.5), (1000, 0.5), (600, 10.0), (130, 100.0), (250, 0.1)])
@pytest.mark.parametrize("tail", ["bot", "top"])
def test_energy_is_the_loop(n: int, percent: float, tail: str) -> None:
    x, y = task(n)
    value = evaluation.score("etran_energy", x, y, percent=percent, tail=tail)
    assert np.isclose(value, energy_loop(x, percent, tail == "top"), rtol=1e-12)


def test_at_least_one_image_counts() -> None:
    assert [etran_energy.tail_size(n, 0.5) for n in (10, 199, 200, 5000)] == [1, 1, 1, 25]


def test_energy_is_of_the_features_own_columns_also_where_these_are_many() -> None:
    x, y = task(20, 90)
    assert np.isclose(evaluation.score("etran_energy", x, y), energy_loop(x, 0.5), rtol=1e-12)
    assert np.isclose(evaluation.score("etran_energy", x + 1e3, y), energy_loop(x, 0.5) + 1e3, rtol=1e-12)


def test_order_and_names_of_labels_do_not_matter() -> None:
    x, y = task()
    order = np.random.default_rng(1).permutation(len(y))
    value = evaluation.score("etran_energy", x, y)
    assert np.isclose(evaluation.score("etran_energy", x[order], y[order]), value, rtol=1e-12)
    assert evaluation.score("etran_energy", x, [f"k{9 - label}" for label in y]) == value


@pytest.mark.parametrize(
    ("options", "said"),
    [({"percent": 0.0}, "above 0"), ({"percent": 101.0}, "at most 100, got 101"), ({"tail": "left"}, "bot or top")],
)
def test_options_that_make_no_sense_are_errors(options: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        evaluation.evaluate_metric("etran_energy", *task(), **options)
