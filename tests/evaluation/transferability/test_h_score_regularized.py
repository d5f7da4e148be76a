"""Regularised H-score: shrinkage against scikit-learn, the trace against a pseudo-inverse by numpy."""

import numpy as np
import pytest
import torch
from sklearn.covariance import LedoitWolf

from evaluation.ranking.inputs.samples import as_sample
from evaluation.ranking.scoring import evaluate_metric, score
from evaluation.transferability import base
from evaluation.transferability.h_score_regularized import h_score_regularized, ledoit_wolf, mean_fourth
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError

RNG = np.random.default_rng(0)
Y = RNG.permutation(np.arange(200) % 5)
X = RNG.normal(size=(5, 16))[Y] + RNG.normal(size=(200, 16))
NAME = "h_score_regularized"


def direct(x: np.ndarray, y: np.ndarray) -> float:
    x = x - x.mean(0)
    shrunk = LedoitWolf().fit(x)
    g = np.stack([x[y == label].mean(0) for label in y])
    inverse = np.linalg.pinv(shrunk.covariance_, rcond=1e-13)
    return float((1 - shrunk.shrinkage_) * np.trace(inverse @ np.atleast_2d(np.cov(g, rowvar=False))))


CASES = {
    "tall": (X, Y),
    "wide": (RNG.normal(size=(30, 80)) + np.eye(80)[np.arange(30) % 3], np.arange(30) % 3),
    "square": (RNG.normal(size=(40, 40)), np.arange(40) % 4),
    "two classes": (X, Y % 2),
    "more classes than dimensions": (X[:, :3], Y),
    "class of one image": (X, np.where(np.arange(200) == 7, 5, Y)),
    "dead units": (np.concatenate([X, np.zeros((200, 300))], 1), Y),
    "constant column": (np.concatenate([X, np.full((200, 1), 3.0)], 1), Y),
    "offset": (X + 1000, Y),
    "unequal scales": (X * np.logspace(-2, 2, 16), Y),
}


@pytest.mark.parametrize("case", CASES)
def test_is_scikit_learns_shrinkage_and_numpys_trace(case: str) -> None:
    x, y = CASES[case]
    found = evaluate_metric(NAME, x, y)
    assert found.score == pytest.approx(direct(x, y), rel=1e-8)
    assert found.diagnostics["shrinkage"] == pytest.approx(LedoitWolf().fit(x).shrinkage_, rel=1e-8)
    assert found.diagnostics["mean_variance"] == pytest.approx(x.var(0).mean(), rel=1e-9)


def test_fourth_moment_over_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "BLOCK", 7 * 16)
    expected = (((X - X.mean(0)) ** 2).sum(1) ** 2).mean()
    assert mean_fourth(as_sample(X, Y)) == pytest.approx(expected, rel=1e-12)


def test_heavy_tails_shrink_more() -> None:
    heavy = X * RNG.exponential(size=(200, 1)) ** 3
    sample = as_sample(heavy, Y)
    a, mu = ledoit_wolf(sample.scatter, mean_fourth(sample), 16)
    assert a == pytest.approx(LedoitWolf().fit(heavy).shrinkage_, rel=1e-9) and a > 0.05
    assert 0 < h_score_regularized(sample.scatter, a, mu) < 4


def test_nothing_shrunk_is_the_pseudo_inverse() -> None:
    x = np.concatenate([X, X[:, :4]], 1)  # the covariance has no inverse
    found = h_score_regularized(as_sample(x, Y).scatter, 0.0, 1.0)
    assert found == pytest.approx(score("h_score", x, Y) * 200 / 199, rel=1e-9)


def test_two_mirrored_images_shrink_nothing() -> None:
    """sum ||x||^4 / N = ||S||^2: a = 0 with a covariance of rank 1."""
    found = evaluate_metric(NAME, np.array([[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]]), [0, 1])
    assert found.diagnostics["shrinkage"] == pytest.approx(0, abs=1e-12)
    assert found.score == pytest.approx(2)


def test_scale_rotation_row_order_and_labels_change_nothing() -> None:
    value = score(NAME, X, Y)
    order = RNG.permutation(200)
    turn = np.linalg.qr(RNG.normal(size=(16, 16)))[0]
    for x, y in ((1e3 * X, Y), (X @ turn - 5, Y), (X[order], Y[order]), (X, np.array(list("ebadc"))[Y])):
        assert score(NAME, x, y) == pytest.approx(value, rel=1e-9)


def test_wide_features_are_told_apart_where_h_score_is_not() -> None:
    x, y = CASES["wide"]
    noise = RNG.normal(size=x.shape)
    with pytest.warns(UserWarning, match="whatever the model"):
        assert score("h_score", x, y) == pytest.approx(score("h_score", noise, y))
    assert score(NAME, x, y) != pytest.approx(score(NAME, noise, y), rel=1e-2)


def test_large_offset_in_float32() -> None:
    x = np.round(X * 512) / 512
    assert score(NAME, (x + 1024).astype(np.float32), Y) == pytest.approx(score(NAME, x, Y), rel=1e-10)


def test_real_features() -> None:
    images = open_images("digits")
    for n in (300, 40):
        x, y = images.pixels[:n, 0].reshape(n, -1) / np.float32(16), images.labels[:n]
        assert score(NAME, x, y) == pytest.approx(direct(x.astype(float), y), rel=1e-8)


def test_equal_rows_and_errors() -> None:
    for value in (0.0, 0.1, 1000.1):
        found = evaluate_metric(NAME, np.full((200, 4), value), Y)
        assert found.score == 0 and "equal" in found.warnings[0]
    with pytest.raises(UserError, match="at least 2 classes"):
        score(NAME, X, np.zeros(200))
    with pytest.raises(UserError, match="one class label per image"):
        score(NAME, X, RNG.normal(size=200))


def test_input_stays_and_bits_repeat() -> None:
    x = torch.from_numpy(X.copy())
    assert score(NAME, x, Y) == score(NAME, x, Y)
    assert np.array_equal(x.numpy(), X)


@pytest.mark.parametrize(
    ("x", "expected"),
    [([[0.0], [1.0], [5.0], [6.0]], 1.2820512820512822), ([[1.0, 1], [1, -1], [-1, 1], [-1, -1]], 4 / 3)],
)
def test_what_needs_no_shrinking_is_not_shrunk(x: list[list[float]], expected: float) -> None:
    found = evaluate_metric("h_score_regularized", np.array(x), [0, 0, 1, 1])
    assert found.score == pytest.approx(expected) and found.diagnostics["shrinkage"] == 0
    assert LedoitWolf().fit(np.array(x)).shrinkage_ == 0


def test_a_covariance_that_is_round_but_for_rounding_is_not_shrunk() -> None:
    """S = mu I in any number of turned axes: ||S||^2 - D mu^2 is the rounding of its two sums."""
    for d in range(2, 12):
        corners = np.vstack([np.eye(d), -np.eye(d)])
        x = corners @ np.linalg.qr(np.random.default_rng(d).normal(size=(d, d)))[0]
        y = np.arange(2 * d) % 2
        found = evaluate_metric(NAME, x, y)
        assert found.diagnostics["shrinkage"] == 0
        assert found.score == pytest.approx(score("h_score", x, y) * 2 * d / (2 * d - 1), rel=1e-9)
