"""The search of the strength on digits: the best of all strengths or as good, where it ends, float32 and float64."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from evaluation.learners import strengths
from evaluation.learners.linear_heads import Scaling
from evaluation.learners.linear_parts import Part
from evaluation.learners.strengths import STRENGTHS, STRIDE, best_of, fit, has_passed_best, problem, scores_of, search
from sslkit.numerics.logistic import fit_path
from sslkit.runtime.context import Runtime

ON_CPU = Runtime(device="cpu")

X, Y = load_digits(return_X_y=True)
X = X.astype(np.float32)
SCALING = Scaling.measure(X, np.arange(600), "standardize")


def part(start: int, stop: int) -> Part:
    return Part(X, np.arange(start, stop), Y[start:stop])


def searched(learn: Part, judge: Part, scaling: Scaling = SCALING) -> list[strengths.Tried]:
    return list(search(learn, judge, scaling, "top1", ON_CPU, 2000, STRENGTHS))


@pytest.mark.nightly
def test_the_chosen_strength_is_as_good_as_the_best_of_all() -> None:
    learn, judge = part(0, 600), part(600, 1700)
    tried = searched(learn, judge)
    path = fit_path(SCALING(X[:600]), Y[:600], STRENGTHS, tol=1e-5, device="cpu")
    values = [judge.value(scores_of(probe, judge, SCALING), "top1") for probe in path]
    chosen = tried[best_of(tried)]
    number = int(np.argmin(np.abs(STRENGTHS - chosen.probe.c)))
    assert chosen.value == pytest.approx(values[number], abs=1.01 / 1100)
    assert chosen.value >= max(values) - 0.002  # accuracies along the path are a rough curve
    assert len(tried) <= len(STRENGTHS[::STRIDE]) + 2 * (STRIDE - 1) < 20
    assert len({one.probe.c for one in tried}) == len(tried)


def test_each_is_solved_to_its_tolerance_from_wherever_it_started() -> None:
    tried = searched(part(0, 600), part(600, 1000))
    for one in tried:
        (exact,) = fit_path(SCALING(X[:600]), Y[:600], [one.probe.c], tol=1e-8, device="cpu")
        assert one.probe.objective == pytest.approx(exact.objective, rel=5e-4)


def test_the_path_ends_after_its_best() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 40)).astype(np.float32)
    noisy = (x[:, 0] + 2 * rng.normal(size=900) > 0).astype(np.int64)  # 63 % at best: weak penalties overfit
    parts = (Part(x, np.arange(150), noisy[:150]), Part(x, np.arange(150, 900), noisy[150:]))
    tried = searched(*parts, Scaling("none"))
    assert max(one.probe.c for one in tried) < 1e4
    best = tried[best_of(tried)]
    assert best.value == max(one.value for one in tried) and 1e-4 < best.probe.c < 1


@pytest.mark.parametrize(
    ("values", "losses", "ended"),
    [
        ([0.5], [1.0], False),
        ([0.5, 0.6, 0.6, 0.6], [1.0, 0.9, 0.8, 0.7], False),  # the loss falls
        ([0.5, 0.6, 0.59, 0.59, 0.59], [1.0, 0.7, 0.8, 0.9, 1.0], True),  # three are worse in both
        ([0.5, 0.6, 0.59, 0.59], [1.0, 0.7, 0.8, 0.9], False),
        ([0.5, 0.6, 0.59, 0.59, 0.61], [1.0, 0.7, 0.8, 0.9, 1.0], False),  # a higher metric
        ([0.5, 0.9, 0.7], [1.0, 0.7, 0.8], True),  # 20 points lower, of 100 rows
        ([0.5, 0.9, 0.7], [1.0, 0.7, 0.6], False),  # but a lower loss
        ([0.5, 0.9, 0.85], [1.0, 0.7, 0.8], False),  # within two standard errors
    ],
)
def test_settled(values: list[float], losses: list[float], ended: bool) -> None:
    assert has_passed_best(values, losses, 100) is ended


def test_float64_goes_on_where_float32_ends() -> None:
    at = problem(part(0, 600), SCALING, ON_CPU)
    alone = at.fit(1e5, tol=1e-7, max_iter=3000)
    both = fit(at, 1e5, tol=1e-7, max_iter=3000, start=None)
    assert not alone.converged and both.converged and both.n_iter > alone.n_iter
    (exact,) = fit_path(SCALING(X[:600]), Y[:600], [1e5], tol=1e-9, max_iter=5000, device="cpu")
    assert both.objective == pytest.approx(exact.objective, rel=1e-5)
    assert at.axes.x.dtype == torch.float32 == at.axes.precision
    assert fit(at, 1e5, tol=1e-7, max_iter=5, start=None).n_iter == 5
