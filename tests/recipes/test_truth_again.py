"""recipes/benchmarks/truth_again.py: the error of the truth that is due to the choice of the learning rate."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "benchmarks"))

import truth_again as study


def record(model: str, values: list[float], lr: float, held_out: list[float]) -> dict:
    grid = [{"lr": 10.0**-k, "value": value, "diverged": False} for k, value in enumerate(held_out, 1)]
    grid.append({"lr": 1.0, "value": 1.0, "diverged": True})
    found = {
        "data": "tasks/a.npz",
        "model": model,
        "weights": model,
        "values": values,
        "chosen": {"lr": lr},
        "grid": grid,
    }
    return found | {"grid": grid, "train_images": 100, "settings": {}}


def test_the_noise_of_the_choice_is_found_again() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(4000, 1))
    a, b = (truth + 3.0 * rng.normal(size=(4000, 1)) + 2.0 * rng.normal(size=(4000, 2)) for _ in range(2))
    seeds, apart = study.between_seeds(a, b), float(np.sqrt(np.mean((a.mean(1) - b.mean(1)) ** 2)))
    assert seeds == pytest.approx(2.0, rel=0.05)
    assert study.rate_noise(seeds, apart) == pytest.approx(3.0, rel=0.05)
    assert study.rate_noise(seeds, seeds / 2) == 0, "less than the seeds explain"


def test_a_task_that_was_measured_twice() -> None:
    first = [record("m", [0.5, 0.6], 0.1, [0.8, 0.8]), record("n", [0.7, 0.8], 0.1, [0.9, 0.8])]
    more = [record("m", [0.5, 0.6, 0.1, 0.1, 0.1], 0.1, [0.8, 0.8]), record("o", [0.1, 0.2], 0.1, [0.3, 0.2])]
    again = [record("m", [0.6, 0.7], 0.01, [0.7, 0.8]), record("n", [0.7, 0.8], 0.1, [0.9, 0.8])]
    (found,) = (study.row(task, own, study.by_task(again)[task]) for task, own in study.by_task(first + more).items())
    # sd of each pair 7.07, the differences are 10 and 0: sqrt(50) = 7.07, no more than that of the seeds
    assert found == ["a", "20", "1 of 3", "2", "1", "7.1", "7.1", "0.0", "1.00", "1.00"]
    with pytest.raises(ValueError, match="other weights: n"):
        others = {"m": again[0], "n": again[1] | {"weights": "trained anew"}}
        study.row("a", {"m": first[0], "n": first[1]}, others)
    folds = {"n": first[1] | {"settings": {"folds": 5}}}
    assert study.row("a", folds, {})[1] == "100"
    assert study.row("a", {"n": first[1]}, {}) == ["a", "20", "0 of 1", *[""] * 7]
