"""Options of metrics, checked on a synthetic sample before any extraction."""

from typing import Any

import numpy as np
import pytest

import evaluation
from evaluation.ranking.checks import check_metrics, truth_values
from evaluation.transferability import itm
from sslkit.errors import UserError
from sslkit.options.members import declarations


def test_an_option_for_which_only_the_synthetic_sample_is_too_small_is_accepted() -> None:
    rng = np.random.default_rng(0)
    zoo = {name: (rng.normal(size=(150, 6)), np.arange(150) % 3) for name in "ab"}
    found = evaluation.rank(zoo, metrics=["tmi(k=20)"], bootstrap=0)
    assert np.isfinite(found.scores).all()
    with pytest.raises(UserError, match="k must be a whole number, at least 1, got 0"):
        check_metrics(["tmi(k=0)"])


@pytest.mark.parametrize("way", declarations(itm.score)["evaluate"].limits.choices)
def test_a_text_that_reads_like_python_stays_text(way: str) -> None:
    (spec,) = check_metrics([f"itm(evaluate={way})"])
    assert spec.chain == (("itm", {"evaluate": way}),)
    (spec,) = check_metrics(["nleep(max_dims=none)"])
    assert spec.chain == (("nleep", {"max_dims": None}),)


def test_metrics_are_names() -> None:
    with pytest.raises(UserError, match="metrics=3 must be names of metrics"):
        check_metrics(3)


def test_one_number_an_image_is_ranked_by_a_regression() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=60)
    zoo = {
        "good": (np.stack([y, y**2], 1) + 0.01 * rng.normal(size=(60, 2)), y),
        "noise": (rng.normal(size=(60, 2)), y),
    }
    found = evaluation.rank(zoo, bootstrap=0)
    assert found.metrics == ("logme(targets=regression)",) and found.best == "good"


def test_names_of_models_are_text() -> None:
    x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    with pytest.raises(UserError, match="the name of a model must be text, got 1"):
        evaluation.rank({1: (x, y), 2: (x, y)}, bootstrap=0)


@pytest.mark.parametrize("truth", [[0.91, 88, 70], {"a": 91.0, "b": 0.88, "c": 0}])
def test_a_truth_of_mixed_units_is_refused(truth: Any) -> None:
    with pytest.raises(
        UserError, match=r"truth mixes fractions and percent: [ab] has 0\.(91|88), [ab] has (88|91); give"
    ):
        truth_values(truth, ("a", "b", "c"))
    for same in ([0.91, 0.88, 0.0], [91, 88, 1.5], [-3.0, 0.5, 20.0]):
        assert truth_values(same, ("a", "b", "c")).tolist() == same
