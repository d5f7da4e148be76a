"""recipes/benchmarks/ranking/rules.py: rules are fitted on other tasks, and where asked on other models."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "benchmarks"))

from ranking import rules as study

from evaluation.ranking.consensus import normal_scores

MODELS = tuple(f"m{place}" for place in range(24))


def tasks(count: int = 4, *, quality: bool = True) -> list[study.Task]:
    """Tasks with one good metric and one of noise; covariates are one column of each model's name."""
    rng = np.random.default_rng(0)
    level = rng.normal(size=len(MODELS)) if quality else np.zeros(len(MODELS))
    found = []
    for place in range(count):
        truth = level + rng.normal(size=len(MODELS))
        scores = {"good": truth + rng.normal(size=len(MODELS)), "noise": rng.normal(size=len(MODELS))}
        found.append(study.Task(f"t{place}", MODELS, truth, scores, np.eye(len(MODELS)), {"good": 0.9}))
    return found


def by_heart(fitted_on: list[study.Task]) -> study.Ranker:
    """A rule that knows each model's mean truth, and nothing of others."""
    known = {
        name: np.mean([dict(zip(one.models, one.truth, strict=True))[name] for one in fitted_on])
        for name in fitted_on[0].models
    }
    return lambda task: np.array([known.get(name, 0.0) for name in task.models])


def mean_tau(ranked: list[tuple[study.Task, np.ndarray]]) -> float:
    return float(np.mean([task.agreement(scores) for task, scores in ranked]))


def test_a_rule_that_remembers_models_knows_them_on_new_tasks_but_no_others() -> None:
    given = tasks(8)
    assert mean_tau(study.left_out(given, by_heart)) > 0.4
    assert all(np.array_equal(scores, np.zeros(len(MODELS))) for _, scores in study.unseen(given, by_heart))


def test_a_rule_without_a_fit_ranks_unseen_models_as_others() -> None:
    given, rule = tasks(), study.mean_of_normal_scores
    for (_, a), (_, b) in zip(study.left_out(given, rule), study.unseen(given, rule, halvings=50), strict=True):
        assert np.corrcoef(a, b)[0, 1] > 0.97, "up to the draw of the halves"


def test_unseen_fits_never_see_the_task_or_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    given, seen = tasks(3), []

    def spy(fitted_on: list[study.Task]) -> study.Ranker:
        seen.append(([one.name for one in fitted_on], set(fitted_on[0].models)))
        return lambda task: np.array([np.nan if name in seen[-1][1] else 1.0 for name in task.models])

    monkeypatch.setattr(study, "normal_scores", lambda scores: scores)
    found = study.unseen(given, spy, halvings=3)
    assert len(seen) == 3 * 6 and all(len(models) == 12 for _, models in seen)
    for place, (task, scores) in enumerate(found):
        assert np.isfinite(scores).all(), "a model was scored by a fit that had seen it"
        assert all(task.name not in names for names, _ in seen[6 * place : 6 * place + 6])


def test_the_regression_is_the_least_squares_that_scipy_finds() -> None:
    given = tasks()
    ranker = study.regression(given[1:])
    x = np.concatenate([one.normal(["good", "noise"]).T for one in given[1:]])
    y = np.concatenate([normal_scores(one.truth) for one in given[1:]])
    found = minimize(
        lambda w: ((x @ w - y) ** 2).sum() + study.RIDGE * (w**2).sum(), np.zeros(2), bounds=[(0, None)] * 2, tol=1e-12
    )
    assert np.allclose(ranker(given[0]), given[0].normal(["good", "noise"]).T @ found.x, atol=1e-4)


def test_the_good_metric_is_found() -> None:
    given = tasks(quality=False)
    best = np.mean([task.agreement(task.scores["good"]) for task in given])
    for name in ("weighted by agreement", "greedy choice of metrics", "regression", "best single metric"):
        assert mean_tau(study.left_out(given, study.RULES[name])) > best - 0.1, name
    assert set(study.FITTED) < set(study.RULES)


def test_rules_that_lack_their_inputs_are_left_out() -> None:
    known = study.rules(tasks())
    assert "regression with covariates" in known and ", ".join(study.FIRST_STUDY) not in known
    bare = [study.Task(one.name, one.models, one.truth, one.scores) for one in tasks()]
    assert "regression with covariates" not in study.rules(bare)
    assert bare[0].of(np.array([2, 0])).models == ("m2", "m0")
