"""recipes/benchmarks/seeds_needed.py: the simulated agreement of two halves of the seeds."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "benchmarks"))

import seeds_needed as study


def zoo(noise: float, models: int = 40, seeds: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    truth = 0.6 + 0.1 * rng.normal(size=(models, 1))
    return list(truth + noise * rng.normal(size=(models, seeds)))


def test_the_spread_of_the_models_and_the_noise_of_the_seeds_are_found_again() -> None:
    truth, noise = study.model_of(zoo(0.05, models=2000))
    assert truth.std() == pytest.approx(0.1, rel=0.1) and np.sqrt(np.mean(noise**2)) == pytest.approx(0.05, rel=0.05)


def test_without_noise_the_halves_agree_and_with_it_more_seeds_agree_better() -> None:
    assert study.simulated(zoo(0.0), 1, draws=5) == (pytest.approx(1), pytest.approx(1))
    taus = [study.simulated(zoo(0.05), seeds, draws=50)[0] for seeds in (1, 5, 50)]
    assert taus == sorted(taus) and taus[2] > 0.9 > taus[0]
    as_measured, one = study.simulated(zoo(0.05), None, draws=50), study.simulated(zoo(0.05), 1, draws=50)
    assert as_measured == one, "two seeds are one against one"


def test_the_record_with_most_seeds_counts(tmp_path: Path) -> None:
    def record(model: str, values: list[float]) -> str:
        own = {"model": model, "data": "tasks/a.npz", "values": values, "grid": [1] * 3, "seconds": 10.0}
        own["settings"] = {"folds": 2} if model == "folds" else {}
        return json.dumps(own)

    path = tmp_path / "truth.jsonl"
    path.write_text(
        "\n".join(
            [
                record("m", [0.1, 0.2]),
                record("m", [0.1, 0.2, 0.3, 0.4, 0.5]),
                record("n", [0.6, 0.7]),
                record("folds", [0.6, 0.7]),
            ]
        )
    )
    values, seconds = study.by_task(path)
    assert [len(own) for own in values["a"]] == [5, 2, 2]
    assert seconds == pytest.approx(10 / 8 + 10 / 5 + 10 / 8), "two folds of three rates, and two seeds"
