"""Concept variation against a loop over pairs."""

import numpy as np
import pytest

import evaluation
from sslkit import open_images
from sslkit.errors import UserError


def loop(x: np.ndarray, y: np.ndarray, alpha: float = 2.0) -> float:
    """Image by image, as the formula is written."""
    spread = np.ptp(x, axis=0)
    unit = (x - x.min(0)) / np.where(spread > 0, spread, 1)
    shares = []
    for i in range(len(x)):
        weights = np.zeros(len(x))
        for j in range(len(x)):
            d = np.sqrt(((unit[i] - unit[j]) ** 2).sum())
            weights[j] = 0 if i == j else 2 ** (-alpha * d / (np.sqrt(x.shape[1]) - d))
        shares.append(weights[y != y[i]].sum() / weights.sum())
    return -float(np.mean(shares))


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_it_is_the_loop_over_pairs(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(57, 5)), np.arange(57) % 3
    x[:, 2] = 4.0
    monkeypatch.setattr("evaluation.transferability.concept_variation.BLOCK", 57 * 10)  # six blocks, the last smaller
    assert evaluation.score("concept_variation", x, y, alpha=alpha) == pytest.approx(loop(x, y, alpha), rel=1e-10)


def test_real_images() -> None:
    digits = open_images("digits")
    x, y = digits.pixels[:200, 0].reshape(200, -1).astype(np.float64), digits.labels[:200]
    assert evaluation.score("concept_variation", x, y) == pytest.approx(loop(x, y), rel=1e-10)


def test_tight_classes_vary_less() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    means = 5 * np.eye(3)[y]
    tight, wide = means + 0.1 * rng.normal(size=(60, 3)), means + 5 * rng.normal(size=(60, 3))
    found = [evaluation.score("concept_variation", x, y) for x in (tight, wide)]
    assert -1 < found[1] < found[0] < 0


def test_images_at_the_longest_distance_count_alike() -> None:
    x, y = np.array([[0.0], [1.0], [1.0], [1.0]]), np.array([0, 0, 1, 1])
    # the first has three others at the longest distance; each of the last three has two at distance 0
    assert evaluation.score("concept_variation", x, y) == pytest.approx(-np.mean([2 / 3, 1, 1 / 2, 1 / 2]))


def test_bad_input_is_one_line() -> None:
    with pytest.raises(UserError, match="option alpha must be a number, above 0, got 0"):
        evaluation.score("concept_variation", np.eye(4), [0, 0, 1, 1], alpha=0.0)
