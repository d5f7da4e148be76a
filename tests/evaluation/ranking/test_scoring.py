"""score and evaluate_metric: names, options, what is missing, what it cost."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from forks import exit_code
from torch import nn

import evaluation
from evaluation.ranking.scoring import parse, takes_numbers
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    images = open_images("digits")
    return images.pixels[:300, 0].reshape(300, -1).astype(np.float32), images.labels[:300]


def test_options_reach_the_wrapper_and_the_metric(digits: tuple) -> None:
    spec = parse("ped+nleep", {"lam": 0.3, "covariance": "diag"})
    assert spec.chain == (("ped", {"lam": 0.3}), ("nleep", {"covariance": "diag"}))
    assert parse("ped(lam=0.3)+nleep(covariance=diag,log=false)").chain == (
        ("ped", {"lam": 0.3}),
        ("nleep", {"covariance": "diag", "log": False}),
    )
    near, far = (evaluation.score("ped+logme", *digits, reference=_reference(digits), lam=lam) for lam in (0.3, 0.6))
    assert near != far == evaluation.score("ped(lam=0.6)+logme", *digits, reference=_reference(digits))


def test_an_option_that_both_have_is_taken_in_brackets() -> None:
    assert parse("ped+knn(k=5)", {"lam": 0.3}).chain == (("ped", {"lam": 0.3}), ("knn", {"k": 5}))
    assert parse("ped(k=2)+knn").chain == (("ped", {"k": 2}), ("knn", {}))
    assert parse("knn", {"k": 5}).chain == (("knn", {"k": 5}),)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["published", "agreement", "features"])
def test_a_module_is_there_after_import_evaluation(name: str) -> None:
    code = f"import evaluation; print(evaluation.{name}.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("evaluation.") and done.stdout.strip().endswith(f".{name}"), done.stderr


@pytest.mark.parametrize("name", ["param_count", "feature_dim", "random", "etran_energy"])
def test_metrics_that_read_no_classes_take_numbers_and_several_labels(name: str, digits: tuple) -> None:
    assert takes_numbers(name)
    x, y = digits
    for labels in (np.stack([y > 4, y % 2 == 0], 1).astype(float), y + 0.5):
        found = evaluation.score(name, x, labels, model=7)
        assert math.isfinite(found) and (name == "random" or found == evaluation.score(name, x, y, model=7))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("logmee", {}, "did you mean 'logme'"),
        ("logme+ped", {}, "logme wraps no other metric, only ped do"),
        ("logme", {"lam": 1}, "logme has no option 'lam'"),
        ("ped+logme", {"lamb": 1}, "did you mean 'lam'"),
        ("logme(targets)", {}, "write option=value"),
        ("logme(targets=classes", {}, "is not a metric"),
        ("gbc", {"pca": "many"}, "must be"),
        ("ped(lam=0.3)+logme", {"lam": 0.6}, "lam is given twice"),
        ("ped(lam=0.3,lam=0.6)+logme", {}, "lam is given twice"),
        ("ped+knn", {"k": 5}, r"option of ped and of knn; write it in brackets: ped\(k=\.\.\.\)\+knn or ped\+knn\(k"),
        ("", {}, "is not a metric"),
    ],
)
def test_a_name_or_an_option_that_is_not_there(name: str, options: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse(name, options)


def test_what_a_metric_needs_is_said_before_anything_is_computed(digits: tuple) -> None:
    with pytest.raises(UserError, match="leep needs source_probs"):
        evaluation.score("leep", *digits)
    with pytest.raises(UserError, match="logme needs features"):
        evaluation.score("logme", None, digits[1])
    with pytest.raises(UserError, match="param_count needs model"):
        evaluation.score("param_count", *digits)
    p = np.random.default_rng(0).dirichlet(np.ones(5), size=300)
    assert evaluation.score("leep", None, digits[1], source_probs=p) < 0
    assert evaluation.score("param_count", *digits, model=nn.Linear(3, 4)) == 16


def test_a_metric_over_a_zoo_has_parts_and_no_score(digits: tuple) -> None:
    with pytest.raises(UserError, match="only over a zoo"):
        evaluation.score("etran", *digits)
    found = evaluation.evaluate_metric("etran", *digits)
    assert math.isnan(found.score) and {"classification", "energy"} <= set(found.parts)
    both = evaluation.evaluate_metric("ped(lam=both)+logme", *digits, reference=_reference(digits))
    alone = [evaluation.score("ped+logme", *digits, reference=_reference(digits), lam=lam) for lam in (0.3, 0.6)]
    assert math.isnan(both.score) and sorted(both.parts.values()) == pytest.approx(sorted(alone), rel=1e-12)


def test_warnings_are_raised_as_warnings_and_kept_in_the_result(digits: tuple) -> None:
    with pytest.warns(UserWarning, match="h_score: .* C - 1 whatever the model"):
        evaluation.score("h_score", digits[0][:40], digits[1][:40])
    assert evaluation.evaluate_metric("h_score", digits[0][:40], digits[1][:40]).warnings


def print_what_parc_costs() -> None:
    rng = np.random.default_rng(0)
    found = evaluation.evaluate_metric("parc", rng.normal(size=(2400, 8)), np.arange(2400) % 5, n_dims=None)
    print(found.seconds, found.peak_memory)


def test_time_and_memory_are_measured(tmp_path: Path) -> None:
    """In a process of its own: memory that earlier tests gave back would be used again, and not be counted."""
    said = tmp_path / "said"
    assert exit_code(said, print_what_parc_costs) == 0, said.read_text()
    seconds, peak = map(float, said.read_text().split())
    assert seconds > 0
    assert peak > 2400**2 / 2 * 8  # the pairs' distances alone


def _reference(digits: tuple) -> tuple[np.ndarray, np.ndarray]:
    return digits[0].mean(0), digits[0].std(0)
