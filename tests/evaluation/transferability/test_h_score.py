"""H-score against covariances and a pseudo-inverse by numpy."""

import numpy as np
import pytest
import torch

from evaluation.ranking.scoring import evaluate_metric, score
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError

RNG = np.random.default_rng(0)
Y = RNG.permutation(np.arange(200) % 5)
X = RNG.normal(size=(5, 16))[Y] + RNG.normal(size=(200, 16))


def direct(x: np.ndarray, y: np.ndarray, cut: float = 1e-10) -> float:
    g = np.stack([x[y == label].mean(0) for label in y])
    covariance = np.atleast_2d(np.cov(x, rowvar=False))
    return float(np.trace(np.linalg.pinv(covariance, rcond=cut) @ np.atleast_2d(np.cov(g, rowvar=False))))


CASES = {
    "tall": (X, Y),
    "two classes": (X, Y % 2),
    "more classes than dimensions": (X[:, :3], Y),
    "class of one image": (X, np.where(np.arange(200) == 7, 5, Y)),
    "one column": (X[:, :1], Y),
    "dead units and constant column": (np.concatenate([X, np.zeros((200, 9)), np.full((200, 1), 4.0)], 1), Y),
    "duplicated columns": (np.concatenate([X, X[:, :6]], 1), Y),
    "wide, of few directions": (X[:12] @ RNG.normal(size=(16, 3)) @ RNG.normal(size=(3, 50)), Y[:12]),
}


@pytest.mark.parametrize("case", CASES)
def test_is_the_trace_with_a_pseudo_inverse(case: str) -> None:
    assert score("h_score", *CASES[case]) == pytest.approx(direct(*CASES[case]), rel=1e-8)


def test_is_between_over_total_of_fisher() -> None:
    """In one dimension: the share of the variance that the classes explain."""
    x = X[:, 0]
    means = np.array([x[c == Y].mean() for c in range(5)])
    assert score("h_score", x[:, None], Y) == pytest.approx(means[Y].var() / x.var(), rel=1e-10)


def test_affine_maps_row_order_and_labels_change_nothing() -> None:
    """An eigenvalue of the total scatter is known to n eps of the largest one on any processor, so its inverse to n eps
    times the condition of the covariance."""
    value = score("h_score", X, Y)
    order = RNG.permutation(200)
    mixed = X @ RNG.normal(size=(16, 16)) + 100 * RNG.normal(size=16)
    for x, y in ((mixed, Y), (X * np.logspace(-2, 2, 16), Y), (X[order], Y[order]), (X, np.array(list("ebadc"))[Y])):
        bound = 200 * np.finfo(float).eps * np.linalg.cond(np.cov(x.T))
        assert score("h_score", x, y) == pytest.approx(value, rel=bound) and bound < 1e-5


def test_large_offset_in_float32() -> None:
    x = np.round(X * 512) / 512
    value = score("h_score", x, Y)
    assert score("h_score", (x + 1024).astype(np.float32), Y) == pytest.approx(value, rel=1e-9)


def test_range() -> None:
    assert 0 <= score("h_score", X, RNG.permutation(Y)) < score("h_score", X, Y) < 4
    separate = 1e4 * np.eye(5)[Y] + RNG.normal(size=(200, 5))
    assert score("h_score", separate, Y) == pytest.approx(4, abs=1e-3)


def test_as_many_dimensions_as_images_say_nothing_and_it_says_so() -> None:
    x, y = RNG.normal(size=(20, 19)), np.arange(20) % 4
    for features in (x, RNG.normal(size=(20, 60))):
        found = evaluate_metric("h_score", features, y)
        assert found.score == pytest.approx(3, abs=1e-8)
        assert found.diagnostics["rank"] == 19 and "C - 1 whatever the model" in found.warnings[0]
    assert evaluate_metric("h_score", x[:, :18], y).warnings == ()
    with pytest.warns(UserWarning, match="whatever the model"):
        score("h_score", x, y)


def test_real_features() -> None:
    images = open_images("digits")
    x, y = images.pixels[:300, 0].reshape(300, -1) / np.float32(16), images.labels[:300]
    assert score("h_score", x, y) == pytest.approx(direct(x.astype(float), y), rel=1e-8)


def test_equal_rows_and_one_class() -> None:
    for value in (0.0, 0.1, 1000.1):
        assert score("h_score", np.full((200, 4), value), Y) == 0
    with pytest.raises(UserError, match="at least 2 classes"):
        score("h_score", X, np.zeros(200))
    with pytest.raises(UserError, match="one class label per image"):
        score("h_score", X, RNG.normal(size=200))


def test_input_stays_and_bits_repeat() -> None:
    x = torch.from_numpy(X.copy())
    assert score("h_score", x, Y) == score("h_score", x, Y)
    assert np.array_equal(x.numpy(), X)
