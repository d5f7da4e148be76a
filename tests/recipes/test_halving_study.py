"""recipes/benchmarks/halving_study.py: choices on real digits, and its tables of made-up ones."""

import argparse
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "benchmarks"))

import halving_study as study
import results

from evaluation.features.models import load_model
from evaluation.ranking.ground_truth import ground_truth
from sslkit.errors import UserError

TRUTH = {"accuracies": {"a": 0.9, "b": 0.8, "c": 0.6, "d": 0.1}, "best held out": "b", "seconds": 9}


def made_up(first: int, chosen: str, probability: float | None = 0.7) -> dict:
    tuned = ["c", "a", "b", "d"][:first]
    said = {"probability": probability, "within": 0.6, "steps": 10, "share of all steps": 0.25, "seconds": 1.0}
    return {"ranked first": "c", "tuned": tuned, "chosen": chosen, **said}


def test_regret_of_each_way_to_choose_in_points() -> None:
    found = study.by_task(TRUTH, {2: [made_up(2, "a"), made_up(2, "c")], 4: [made_up(4, "b")]})
    assert found == {
        "a model at random": pytest.approx(30),
        "first by the metric": pytest.approx(30),
        "halving, 2 models": pytest.approx(15),
        "halving, 4 models": pytest.approx(10),
        "every model tuned": pytest.approx(10),
    }


def test_stated_probabilities_beside_the_facts() -> None:
    choices = {("t", 2): [made_up(2, "a"), made_up(2, "c")], ("t", 1): [made_up(1, "c", None)]}
    # of two tuned the best, a, is chosen once of two times; the best of all is among them both times
    assert study.calibrated({"t": TRUTH}, choices, 2) == ["0.25", "0.70", "0.50", "0.60", "1.00"]
    assert study.calibrated({"t": TRUTH}, choices, 1) == ["0.25", "-", "-", "0.60", "0.00"]


def test_choices_are_looked_up_in_a_measured_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    zoo = {f"seed {seed}": load_model(f"random:narrow_resnet:{seed}", image_size=8, in_chans=1) for seed in range(3)}
    how = {"steps": 4, "batch_size": 16, "seeds": [0, 1], "lr": [1e-2, 1e-3], "extend": False, "max_images": 100}
    truth = ground_truth(zoo, "digits", out=tmp_path / "truth", max_test_images=100, progress=False, **how)
    args = argparse.Namespace(zoo=zoo, truth=[tmp_path / "truth"], data=None, first=[2], repeats=1, cache=None)
    args.work = tmp_path / "work"
    study.measure(args)
    runs = results.load(study.RESULTS)["runs"]
    assert set(runs) == {"truth | digits", "choice | digits | 2 | 0"}
    choice = runs["choice | digits | 2 | 0"]
    assert runs["truth | digits"]["accuracies"] == truth.truth["digits"]
    tried = {name: study.of_chosen_rate(record) for name, record in truth.results["digits"].items()}
    assert runs["truth | digits"]["best held out"] == max(tried, key=tried.get)
    assert choice["chosen"] in choice["tuned"] and choice["ranked first"] in choice["tuned"]
    told = study.table(runs)
    assert "halving, 2 models" in told and "| digits |" in told
    study.measure(args)
    assert results.load(study.RESULTS)["runs"] == runs, "finished choices are not made again"
    with pytest.raises(UserError, match="no results with settings of clipart"):
        study.measure(argparse.Namespace(**vars(args) | {"data": ["clipart"]}))
