"""One temperature: the lowest likelihood on a grid, bounded where all are right, folded into a layer."""

import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss
from torch import nn

from evaluation.learners.calibration import (
    calibration_error,
    inverse_temperature,
    measure_probabilities,
    scale_outputs,
    softmax,
)
from sslkit.numerics.wilson import Z95


def drawn(n: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores, and labels drawn by the probabilities of these scores."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, k)) * 2
    return scores, np.array([rng.choice(k, p=row) for row in softmax(scores)])


def likelihood(scores: np.ndarray, y: np.ndarray, beta: float) -> float:
    """The smoothed negative log-likelihood, as its docstring says."""
    n, k = scores.shape
    logs = np.log(softmax(beta * scores))
    right = logs[np.arange(n), y]
    share = (n + 1) / (n + 2)
    return float(-(share * right + (1 - share) * (logs.sum(1) - right) / (k - 1)).mean())


@pytest.mark.parametrize("factor", [0.2, 1.0, 7.0])
def test_the_factor_is_the_best_of_a_grid_and_undoes_another_scale(factor: float) -> None:
    scores, y = drawn(4000, 4, 1)
    beta = inverse_temperature(scores / factor, y)
    grid = np.geomspace(beta / 4, beta * 4, 401)
    values = [likelihood(scores / factor, y, candidate) for candidate in grid]
    assert abs(np.argmin(values) - 200) <= 1
    assert beta == pytest.approx(factor, rel=0.1)


def test_several_labels_have_one_factor_of_those_that_count() -> None:
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(3000, 3)) * 2
    y = np.where(rng.random(scores.shape) < 1 / (1 + np.exp(-scores)), 1, -1).astype(np.int8)
    assert inverse_temperature(scores / 3, y) == pytest.approx(3, rel=0.1)
    y[:, 2] = 0
    spoilt = scores / 3
    spoilt[:, 2] = 1e6
    assert inverse_temperature(spoilt, y) == pytest.approx(3, rel=0.15)


def test_a_few_images_that_are_all_right_make_nothing_certain() -> None:
    scores = np.eye(3)[[0, 1, 2, 0]] * 5
    beta = inverse_temperature(scores, np.array([0, 1, 2, 0]))
    assert softmax(beta * scores).max() == pytest.approx(5 / 6, abs=1e-6)


def test_calibrated_scores_have_no_error_and_sure_ones_have() -> None:
    scores, y = drawn(20_000, 4, 3)
    assert calibration_error(scores, y) < Z95 * (15 * 0.25 / 20_000) ** 0.5
    assert calibration_error(scores * 5, y) > 0.15
    several = np.stack([y == k for k in range(4)], 1) * 2 - 1
    assert calibration_error(np.where(several > 0, 50.0, -50.0), several) == pytest.approx(0, abs=1e-9)


def error_of_a_loop(probabilities: np.ndarray, y: np.ndarray, bins: int) -> float:
    """Naeini et al. 2015: sorted by confidence, cut into as many equal parts, here where no confidence is double."""
    order, total = sorted(range(len(y)), key=lambda row: probabilities[row].max()), 0.0
    for number in range(bins):
        rows = [row for place, row in enumerate(order) if place * bins // len(y) == number]
        right = sum(probabilities[row].argmax() == y[row] for row in rows) / len(rows)
        sure = sum(probabilities[row].max() for row in rows) / len(rows)
        total += len(rows) / len(y) * abs(right - sure)
    return total


@pytest.mark.parametrize(("n", "k"), [(40, 2), (333, 3), (1000, 10)])
def test_likelihood_brier_and_calibration_error_are_those_of_independent_code(n: int, k: int) -> None:
    scores, y = drawn(n, k, n)
    measured = {name: number.value for name, number in measure_probabilities(2 * scores, y).items()}
    probabilities = softmax(2 * scores)
    assert measured["nll"] == pytest.approx(log_loss(y, probabilities, labels=range(k)), abs=1e-6)
    brier = brier_score_loss(y, probabilities if k > 2 else probabilities[:, 1], labels=range(k), scale_by_half=False)
    assert measured["brier"] == pytest.approx(brier, abs=1e-6)
    assert measured["ece"] == pytest.approx(error_of_a_loop(probabilities, y, 15), abs=1e-6)
    assert measured["ece"] == calibration_error(2 * scores, y)


def test_the_order_of_images_changes_nothing_also_where_confidences_are_equal() -> None:
    scores, y = drawn(300, 3, 5)
    scores = np.round(scores)
    turned = np.random.default_rng(0).permutation(300)
    assert calibration_error(scores, y) == pytest.approx(calibration_error(scores[turned], y[turned]), abs=1e-12)


def test_groups_are_drawn_whole() -> None:
    scores, y = drawn(120, 3, 6)
    alone, groups = measure_probabilities(scores, y), np.repeat(np.arange(120), 5)
    five = measure_probabilities(np.repeat(scores, 5, 0), np.repeat(y, 5), groups)
    for name in ("nll", "brier", "ece"):
        assert five[name].value == pytest.approx(alone[name].value, abs=2e-2 if name == "ece" else 1e-9)
        widths = [high - low for low, high in (alone[name].interval, five[name].interval)]
        assert widths[1] == pytest.approx(widths[0], rel=0.25), "five copies of an image say no more than one"
        assert "120 groups" in five[name].kind


def test_few_images_have_a_calibration_error_without_an_interval() -> None:
    scores, y = drawn(20, 3, 7)
    measured = measure_probabilities(scores, y)
    assert measured["ece"].interval is None and "it takes about 30" in measured["ece"].kind
    assert measured["nll"].interval is not None


def test_a_factor_is_folded_into_a_layer() -> None:
    layer, x = nn.Linear(5, 3), torch.randn(7, 5)
    torch.testing.assert_close(scale_outputs(layer, 0.3)(x), layer(x) * 0.3)
