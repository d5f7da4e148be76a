"""recipes/benchmarks/truth_budgets.py: accuracy by the number of steps."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "benchmarks"))

import truth_budgets as study


def record(steps: int, values: list[float], model: str = "m") -> dict:
    return {"data": "tasks/a.npz", "model": model, "weights": model, "values": values, "settings": {"steps": steps}}


def test_a_model_with_several_budgets_is_compared_on_the_seeds_that_all_have() -> None:
    records = [
        record(600, [0.7, 0.7]),
        record(300, [0.4, 0.6, 0.9, 0.9]),
        record(300, [0.4, 0.6]),
        record(300, [1], "n"),
    ]
    found = study.curves(records)
    assert list(found) == [("a", "m")] and list(found["a", "m"]) == [300, 600]
    assert len(found["a", "m"][300]["values"]) == 4
    header, row = study.table(found)
    assert header == ["task", "model", "300 steps", "600 steps"]
    assert row == ["a", "m", "50.0 ± 14.1", "70.0 ± 0.0"]


def test_budgets_of_other_weights_are_not_compared() -> None:
    with pytest.raises(ValueError, match="of different weights"):
        study.curves([record(300, [0.5]), record(600, [0.6]) | {"weights": "trained anew"}])


def test_a_budget_that_was_not_measured_stays_empty() -> None:
    records = [record(150, [0.5]), record(300, [0.6]), record(300, [0.6], "n"), record(600, [0.7], "n")]
    assert [row[1:] for row in study.table(study.curves(records))[1:]] == [
        ["m", "50.0", "60.0", ""],
        ["n", "", "60.0", "70.0"],
    ]


def test_two_budgets_agree_as_scipy_says() -> None:
    rising = [record(steps, [0.1 * place + steps / 1000], f"m{place}") for place in range(10) for steps in (1, 2)]
    _, row = study.pairs(study.curves(rising))
    assert row == ["a", "1, 2", "10", "45.1, 45.2", "1.00", "1.00"]
    assert len(study.pairs(study.curves(rising[:-2]))) == 1, "nine models are too few"


def test_two_budgets_are_compared_on_the_seeds_that_both_have() -> None:
    more = [record(1, [0.1 * place, 0.1 * place, 5.0], f"m{place}") for place in range(10)]
    fewer = [record(2, [0.1 * place, 0.1 * place], f"m{place}") for place in range(10)]
    assert study.pairs(study.curves(more + fewer))[1] == ["a", "1, 2", "10", "45.0, 45.0", "1.00", "1.00"]
