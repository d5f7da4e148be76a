"""recipes/benchmarks/ranking/halving.py: choices on real digits, and its tables of made-up ones."""

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "benchmarks"))

import results
from ranking import halving as study

from evaluation.features.models import load_model
from evaluation.ranking.choice.rounds import Arm, Round
from evaluation.ranking.truth.ground_truth import ground_truth
from sslkit.errors import UserError

TRUTH = {
    "accuracies": {"a": 0.9, "b": 0.8, "c": 0.6, "d": 0.1},
    "seeds": dict.fromkeys("abcd", 2),
    "best held out": {"accuracy": ["b", "c"], "loss": ["a"]},
    "seconds": 9,
}


def made_up(first: int, chosen: str, probability: float | None = 0.7) -> dict:
    tuned = ["c", "a", "b", "d"][:first]
    said = {"probability": probability, "within": 0.6, "steps": 10, "share of all steps": 0.25, "seconds": 1.0}
    said["step noise"] = [0.04, 0.01]
    return {"ranked first": "c", "tuned": tuned, "chosen": chosen, **said}


def test_regret_of_each_way_to_choose_in_points() -> None:
    found = study.by_task(TRUTH, {"two": [made_up(2, "a"), made_up(2, "c")], "four": [made_up(4, "b")]})
    assert found == {
        "a model at random": pytest.approx(30),
        "first by the metric": pytest.approx(30),
        "halving, two": pytest.approx(15),
        "halving, four": pytest.approx(10),
        "every model tuned, by accuracy": pytest.approx(20),
        "every model tuned, by loss": pytest.approx(0),
    }


def test_stated_probabilities_beside_the_facts() -> None:
    choices = {("t", "two"): [made_up(2, "a"), made_up(2, "c")], ("t", "one"): [made_up(1, "c", None)]}
    # of two tuned the best, a, is chosen once of two times; the best of all is among them both times
    assert study.calibrated({"t": TRUTH}, choices, "two") == ["2", "0.25", "0.70", "0.50", "0.50", "0.60", "1.00"]
    assert study.calibrated({"t": TRUTH}, choices, "one") == ["1", "0.25", "-", "-", "-", "0.60", "0.00"]


def test_two_models_that_the_truth_cannot_tell_apart_are_a_coin() -> None:
    truth = {"accuracies": {"a": 0.8, "b": 0.8, "c": 0.2}, "seeds": {"a": 2, "b": 2, "c": 2}}
    assert study.chance_best(truth, ["a", "b", "c"], "b") == pytest.approx(0.5, abs=0.03)
    # b leads by 0.02, the difference has a standard deviation of 0.05 * 0.4 = 0.02: P(N(0, 1) < 1)
    assert study.chance_best(truth | {"accuracies": {"a": 0.8, "b": 0.82, "c": 0.2}}, ["a", "b"], "b") == pytest.approx(
        0.845, abs=0.03
    )


def test_the_noise_of_the_steps_is_found_again_without_that_of_the_images() -> None:
    rng = np.random.default_rng(0)
    found: dict[float, list[float]] = {0.0: [], 0.15: []}
    for _ in range(200):
        for spread, noises in found.items():
            truth = 0.5 + 0.1 * rng.normal(size=6)
            early = truth - 0.1 + spread * 0.5 * rng.normal(size=6)
            hard = rng.random(300)
            arms = tuple(_arm(str(m), hard < edge) for m, edge in enumerate(early))
            rounds = [Round(arms, 1, 2, (0,)), Round(arms[:2], 2, 1, (0,))]
            noises += study.step_noise(rounds, {str(m): value for m, value in enumerate(truth)})
    assert np.mean(found[0.0]) == pytest.approx(0, abs=0.002)
    assert np.mean(found[0.15]) == pytest.approx(0.15**2, rel=0.2)


def _arm(name: str, right: np.ndarray) -> Arm:
    return Arm(name, (0.1,), np.array([right.mean()]), right[None], 1.0, 1)


def test_ways_to_choose_are_compared_over_the_tasks() -> None:
    regrets = [{"a model at random": 9.0, "a": a, "b": b} for a, b in ((1.0, 3.0), (2.0, 3.0), (2.0, 2.0))]
    header, a, b = study.differences(regrets)
    assert header[1:] == ["a", "b"]
    mean, half = 1.0, ttest_rel([3, 3, 2], [1, 2, 2]).confidence_interval(0.95).high - 1
    assert b == ["b", f"+{mean:.1f} ({mean - half:.1f} to {mean + half:.1f})", ""]
    assert a == ["a", "", f"-{mean:.1f} ({-mean - half:.1f} to {-mean + half:.1f})"]
    assert study.differences(regrets[:1])[2] == ["b", "+2.0", ""], "one task has no interval"


def test_a_choice_is_made_from_the_settings_that_it_shares_with_the_truth() -> None:
    settings, weights = {"steps": 150, "grid": {"lr": [0.1]}, "seeds": [0, 1]}, {"m": "one"}
    found = study.inputs(settings, weights)
    assert study.inputs(settings | {"seeds": [0, 1, 2], "folds": 5}, weights) == found
    assert study.inputs(settings | {"steps": 300}, weights) != found
    assert study.inputs(settings, {"m": "another"}) != found


@pytest.mark.nightly
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
    tried = {name: study.of_chosen_rate(record, "loss") for name, record in truth.results["digits"].items()}
    assert runs["truth | digits"]["best held out"]["loss"] == [min(tried, key=tried.get)]
    assert choice["chosen"] in choice["tuned"] and choice["ranked first"] in choice["tuned"]
    told = study.table(runs)
    assert "halving, 2 models" in told and "| digits |" in told
    study.measure(args)
    assert results.load(study.RESULTS)["runs"] == runs, "finished choices are not made again"
    made = []
    monkeypatch.setattr(study, "choice", lambda *given: made.append(given) or choice)
    others = zoo | {"seed 2": load_model("random:narrow_resnet:7", image_size=8, in_chans=1)}
    ground_truth(others, "digits", out=tmp_path / "truth", max_test_images=100, progress=False, **how)
    study.measure(argparse.Namespace(**vars(args) | {"zoo": others}))
    assert len(made) == 1, "choices of other weights are made again"
    with pytest.raises(UserError, match="no results with settings of clipart"):
        study.measure(argparse.Namespace(**vars(args) | {"data": ["clipart"]}))
