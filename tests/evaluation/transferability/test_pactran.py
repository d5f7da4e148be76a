"""PACTran against scipy's minimum of its loss and second derivatives by weight."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

import evaluation
from sslkit import open_images
from sslkit.errors import UserError


def bound(x: np.ndarray, y: np.ndarray, strength: float, variance: float) -> float:
    """The weights one by one, as numbers of a vector."""
    x = x - x.mean(0)
    (n, d), c = x.shape, y.max() + 1
    hot = np.eye(c)[y]

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        w, b = theta[: d * c].reshape(d, c), theta[d * c :]
        logits = x @ w + b
        value = -(hot * log_softmax(logits, 1)).sum() / n + (w**2).sum() / (2 * strength * n)
        residual = (softmax(logits, 1) - hot) / n
        return value, np.concatenate([(x.T @ residual + w / (strength * n)).ravel(), residual.sum(0)])

    found = minimize(
        loss,
        np.zeros((d + 1) * c),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 20000, "ftol": 1e-16, "gtol": 1e-9},
    )
    w, b = found.x[: d * c].reshape(d, c), found.x[d * c :]
    second = 0.0
    for k in range(c):
        p = softmax(x @ w + b, 1)[:, k]
        for j in range(d):
            second += (x[:, j] ** 2 * (p - p**2)).sum() + 1 / (strength * n)
        second += (p - p**2).sum()
    sigma = second * strength * n / (d * c) + 1e-10
    return found.fun + 0.5 * d * c / (strength * n) * (variance / d) * np.log(sigma)


def task(n: int = 90, d: int = 6, c: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(n) % c)
    return 5 + rng.normal(size=(c, d))[y] + rng.normal(size=(n, d)), y


@pytest.mark.parametrize("strength", [10.0, 1.0, 0.1])
@pytest.mark.parametrize("variance", [10.0, 0.1])
@pytest.mark.parametrize("c", [2, 3])
def test_it_is_the_bound_with_a_minimum_by_scipy(strength: float, variance: float, c: int) -> None:
    x, y = task(c=c)
    value = evaluation.score("pactran", x, y, strength=strength, variance=variance)
    assert -value == pytest.approx(bound(x, y, strength, variance), rel=1e-5)


def test_real_images_with_more_pixels_than_images() -> None:
    digits = open_images("digits")
    x, y = digits.pixels[:50, 0].reshape(50, -1).astype(np.float64) / 16, digits.labels[:50]
    assert -evaluation.score("pactran", x, y) == pytest.approx(bound(x, y, 1.0, 1.0), rel=1e-5)


def test_separated_classes_score_higher_than_shuffled_ones() -> None:
    x, y = task()
    assert evaluation.score("pactran", x, y) > evaluation.score("pactran", x, np.roll(y, 1))


@pytest.mark.parametrize("options", [{"strength": 0.0}, {"variance": -1.0}])
def test_a_prior_without_variance_is_an_error(options: dict) -> None:
    with pytest.raises(UserError, match=r"(strength|variance) must be a number, above 0"):
        evaluation.score("pactran", *task(), **options)
