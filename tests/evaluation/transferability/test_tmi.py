"""TMI against the entropy estimator of its paper, row by row, and against known entropies."""

import numpy as np
import pytest
from scipy.special import digamma

import evaluation
from sslkit import open_images
from sslkit.errors import UserError


def loop(x: np.ndarray, y: np.ndarray, k: int = 3, floor: float = 1.0) -> float:
    """Neighbour by neighbour; classes of 2 to k images are dropped, those of one are 0."""
    parts = []
    for c in np.unique(y):
        own = x[y == c]
        n, d = own.shape
        if n == 1:
            parts.append(0.0)
        elif n > k:
            logs = []
            for i in range(n):
                far = sorted(np.abs(own[i] - own[j]).max() for j in range(n) if j != i)
                logs.append(np.log(2 * max(far[k - 1], floor)))
            parts.append(n / len(y) * (digamma(n) - digamma(k) + d * np.mean(logs)))
    return float(np.mean(parts))


def task(counts: tuple[int, ...], d: int = 4, scale: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(len(counts)), counts)
    return scale * rng.normal(size=(len(y), d)), y


@pytest.mark.parametrize("counts", [(12, 20, 9), (12, 1, 9, 3), (5, 4, 2)])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("floor", [0.01, 1.0, 4.0])
def test_it_is_the_loop_over_neighbours(counts: tuple[int, ...], k: int, floor: float) -> None:
    x, y = task(counts)
    assert evaluation.score("tmi", x, y, k=k, floor=floor) == pytest.approx(loop(x, y, k, floor), rel=1e-10)


def test_real_images() -> None:
    digits = open_images("digits")
    x, y = digits.pixels[:200, 0].reshape(200, -1).astype(np.float64), digits.labels[:200]
    assert evaluation.score("tmi", x, y) == pytest.approx(loop(x, y), rel=1e-10)


def test_the_entropy_of_a_uniform_square_is_the_logarithm_of_its_area() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 50, size=(4000, 2)), np.arange(4000) % 2
    # the mean over two classes of half of ln 2500
    assert evaluation.score("tmi", x, y, floor=1e-9) == pytest.approx(np.log(2500) / 2, abs=0.05)


def test_wide_classes_score_higher_and_the_floor_warns() -> None:
    x, y = task((20, 20))
    assert evaluation.score("tmi", 2 * x, y) > evaluation.score("tmi", x, y)
    found = evaluation.evaluate_metric("tmi", features=1e-3 * x, labels=y)
    assert any("100% of the distances are below floor=1" in text for text in found.warnings)


def test_classes_that_are_too_small_and_options_out_of_range_are_named() -> None:
    x, y = task((3, 2, 3))
    with pytest.raises(UserError, match=r"no class has more than 3 images.*tmi\(k=1\)"):
        evaluation.score("tmi", x, y)
    assert np.isfinite(evaluation.score("tmi", x, y, k=1))
    for options in ({"k": 0}, {"floor": 0.0}, {"floor": -1.0}):
        with pytest.raises(UserError, match=r"k must be a whole number, at least 1|floor must be a number, above 0"):
            evaluation.score("tmi", x, y, **options)
