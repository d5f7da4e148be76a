"""Logistic regression against scikit-learn converged, on digits; the bound on the gap, any kind of label, bad input."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from sslkit.errors import UserError
from sslkit.numerics.lbfgs import begin, minimise, principal_axes, softmax_loss
from sslkit.numerics.logistic import copy_rows, fit_logistic, fit_path, sigmoid_problem

X, Y = load_digits(return_X_y=True)
X, Y, X_NEW = X[:600] / 16, Y[:600], X[600:] / 16


def oracle(x: np.ndarray, y: np.ndarray, c: float) -> LogisticRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it must converge
        return LogisticRegression(C=c, tol=1e-9, max_iter=50000).fit(x, y)


def objective(weight: np.ndarray, bias: np.ndarray, x: np.ndarray, labels: np.ndarray, c: float) -> float:
    scores = torch.from_numpy(x @ weight.T + bias)
    loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels), reduction="sum")
    return 0.5 * float((weight**2).sum()) + c * loss.item()


@pytest.mark.parametrize("c", [1e-4, 0.1, 1.0, 100.0])
def test_it_is_scikit_learn_converged(c: float) -> None:
    probe, want = fit_logistic(X, Y, c), oracle(X, Y, c)
    best = objective(want.coef_, want.intercept_, X, Y, c)
    assert probe.converged and probe.gap <= 1e-6
    assert probe.objective == pytest.approx(objective(probe.weight, probe.bias, X, Y, c), rel=1e-10)
    assert probe.objective == pytest.approx(best, rel=1e-6)
    scores = np.sort(want.decision_function(X_NEW), axis=1)
    sure = scores[:, -1] - scores[:, -2] > 1e-2
    assert sure.mean() > 0.95 or c < 1e-3
    assert (probe.predict(X_NEW) == want.predict(X_NEW))[sure].all()


def test_more_features_than_rows_and_a_far_mean() -> None:
    x = np.concatenate([X[:50], np.sin(X[:50] @ np.arange(64 * 90).reshape(64, 90))], 1) + 30
    probe, want = fit_logistic(x, Y[:50], 1.0, tol=1e-9), oracle(x - 30, Y[:50], 1.0)
    assert probe.converged and x.shape == (50, 154)
    np.testing.assert_allclose(probe.weight, want.coef_, atol=1e-5)
    scores = want.decision_function(x - 30)
    shift = (probe.scores(x) - scores).mean(1, keepdims=True)  # the same for all classes says nothing
    np.testing.assert_allclose(probe.scores(x), scores + shift, atol=1e-4)
    assert abs(probe.bias.sum()) < 1e-10


def test_two_classes_are_the_binary_fit_of_twice_the_strength() -> None:
    rows = Y < 2
    probe, want = fit_logistic(X[rows], Y[rows], 0.5, tol=1e-10), oracle(X[rows], Y[rows], 1.0)
    np.testing.assert_allclose(probe.weight, np.concatenate([-want.coef_, want.coef_]) / 2, atol=1e-5)
    margin = want.decision_function(X[rows]) * np.where(Y[rows] == 1, 1, -1)
    binary = 0.5 * (want.coef_**2).sum() + np.logaddexp(0, -margin).sum()
    assert probe.objective == pytest.approx(binary / 2, rel=1e-6)


@pytest.mark.parametrize("c", [0.01, 1.0, 1e4])
@pytest.mark.parametrize("steps", [1, 4, 16, 64])
def test_the_gap_is_a_bound(c: float, steps: int) -> None:
    early, end = fit_logistic(X, Y, c, max_iter=steps), fit_logistic(X, Y, c, tol=1e-8, max_iter=5000)
    missing = (early.objective - end.objective) / early.objective
    assert -1e-12 < missing <= early.gap
    assert early.converged == (early.gap <= 1e-6) and early.n_iter <= steps
    assert early.converged or early.n_iter == steps


def test_a_path_is_the_fits_one_by_one() -> None:
    cs = [0.01, 1.0, 100.0]
    path = list(fit_path(X, Y, cs, tol=1e-8, device="cpu"))
    for c, probe in zip(cs, path, strict=True):
        alone = fit_logistic(X, Y, c, tol=1e-8)
        assert probe.c == c and probe.objective == pytest.approx(alone.objective, rel=1e-7)
        np.testing.assert_allclose(probe.weight, alone.weight, atol=1e-3)
    hurried = list(fit_path(X, Y, cs, tol=1e-8, promise=1e-4, device="cpu"))
    assert sum(probe.n_iter for probe in hurried) < sum(probe.n_iter for probe in path)
    assert hurried[2].objective == pytest.approx(path[2].objective, rel=0.01)


def test_float32_as_on_a_gpu_reaches_the_same_minimum() -> None:
    axes, loss = principal_axes(torch.from_numpy(X).float(), torch.float32), softmax_loss(torch.from_numpy(Y))
    state = begin(axes, loss, torch.zeros(10, 65, dtype=torch.float64))
    found = minimise(axes, loss, state, 1 / len(X), tol=1e-5, max_iter=500)
    exact = fit_logistic(X, Y, 1.0)
    # It ends where fp32 no longer falls: at 1.2e-5 on an Intel Xeon with AMX, below 1e-5 on other processors.
    assert found.gap <= 2e-5 and state.theta.dtype == torch.float64 and state.logits.dtype == torch.float32
    weight, bias = (part.numpy() for part in axes.back(state.theta))
    assert objective(weight, bias, X, Y, 1.0) == pytest.approx(exact.objective, rel=1e-5)


def test_a_start_is_used() -> None:
    probe = fit_logistic(X, Y, 10.0)
    again = fit_logistic(X, Y, 10.0, start=probe)
    assert again.n_iter <= 1 < probe.n_iter and again.objective == pytest.approx(probe.objective, rel=1e-6)
    with pytest.raises(UserError, match="other classes"):
        fit_logistic(X[Y < 5], Y[Y < 5], start=probe)


def test_row_order_and_number_types_do_not_matter() -> None:
    order = np.random.default_rng(0).permutation(len(X))
    probe = fit_logistic(X, Y, tol=1e-10)
    others = [
        fit_logistic(X[order], Y[order], tol=1e-10),
        fit_logistic(X.astype(np.float32), Y.tolist(), tol=1e-10),
        fit_logistic(torch.from_numpy(X).float().requires_grad_(), torch.from_numpy(Y), tol=1e-10),
    ]
    for other in others:
        np.testing.assert_allclose(other.weight, probe.weight, atol=1e-4)
        assert (other.predict(X_NEW) == probe.predict(X_NEW)).mean() > 0.999


@pytest.mark.parametrize("name", [str, lambda y: (int(y), "digit"), lambda y: None if y == 3 else int(y)])
def test_labels_of_any_kind_come_back(name) -> None:
    labels = [name(y) for y in Y]
    probe = fit_logistic(X, labels, 0.1)
    expected = [name(y) for y in fit_logistic(X, Y, 0.1).predict(X_NEW)]
    assert list(probe.predict(X_NEW)) == expected
    shuffled = np.random.default_rng(0).permutation(len(X))
    assert list(fit_logistic(X[shuffled], [labels[i] for i in shuffled], 0.1).classes) == list(probe.classes)


def test_one_vs_rest_leaves_out_what_does_not_count() -> None:
    y = np.where(Y[:, None] == np.arange(10), 1, -1).astype(np.int8)
    y[np.random.default_rng(0).random(y.shape) < 0.2] = 0
    problem = sigmoid_problem(copy_rows(X, len(X), device="cpu"), y, torch.float64)
    first, second = (problem.fit(c, tol=1e-9) for c in (0.1, 3.0))
    for probe in (first, second):
        assert probe.converged
        for k in (0, 8):
            rows = y[:, k] != 0
            want = oracle(X[rows], y[rows, k], probe.c)
            np.testing.assert_allclose(probe.weight[k], want.coef_[0], atol=2e-3)
            np.testing.assert_allclose(probe.bias[k], want.intercept_[0], atol=2e-3)
    margins = y * first.scores(X)
    total = 0.5 * (first.weight**2).sum() + 0.1 * (np.logaddexp(0, -margins) * (y != 0)).sum()
    assert first.objective == pytest.approx(total, rel=1e-9)


def test_features_that_say_nothing_give_the_shares() -> None:
    x = np.tile([[1.0], [-1.0]], (10, 3))  # each label has as many of both
    probe = fit_logistic(x, [0] * 14 + [1] * 6)
    p = np.exp(probe.scores(np.ones((1, 3)))[0])
    np.testing.assert_allclose(p / p.sum(), [0.7, 0.3], atol=1e-5)


def test_no_global_random_numbers() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    fit_logistic(X[:50], Y[:50])
    assert torch.equal(before, torch.get_rng_state())


def test_bad_input() -> None:
    broken = X.copy()
    broken[7, 3] = np.nan
    with pytest.raises(UserError, match=r"NaN.*row 7"):
        fit_logistic(broken, Y)
    with pytest.raises(UserError, match="two classes"):
        fit_logistic(X[:9], ["cat"] * 9)
    with pytest.raises(UserError, match="all 10 rows of features are equal"):
        fit_logistic(np.ones((10, 3)), [0] * 7 + [1] * 3)
    for label in (3, np.array(3), torch.tensor(3), "cat"):
        with pytest.raises(UserError, match="one label for each row"):
            fit_logistic(X[:3], label)
    with pytest.raises(UserError, match=r"600, 64.*599 labels"):
        fit_logistic(X, Y[:-1])
    with pytest.raises(UserError, match="c=-1"):
        fit_logistic(X, Y, -1)
    with pytest.raises(UserError, match="tol=0"):
        fit_logistic(X, Y, tol=0)
    with pytest.raises(UserError, match="64 features"):
        fit_logistic(X, Y, max_iter=1).predict(X[:, :5])
    with pytest.raises(UserError, match=r"class number 1 .* 0 with it"):
        sigmoid_problem(copy_rows(X[:4], 4, device="cpu"), [[1, -1], [-1, -1], [1, 0], [-1, -1]], torch.float64)
