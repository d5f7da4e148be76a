"""Det-LogME against LogME of a target written out, and boxes of a ridge regression solved directly."""

import numpy as np
import pytest

import evaluation
from sslkit.errors import UserError


def task(d: int, n: int = 45) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels (2 is the background) and boxes; the first two features know the corner."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, d)), np.arange(n) % 3
    corner = 0.3 + 0.1 * np.tanh(x[:, :2])
    boxes = np.concatenate([corner, corner + rng.uniform(0.2, 0.4, size=(n, 2))], 1)
    boxes[y == 2] = np.nan
    return x + 1, y, boxes


def evidence_and_prediction(x: np.ndarray, t: np.ndarray) -> tuple[float, np.ndarray]:
    """LogME of one target, and its fitted values: the fixed point with matrices solved whole."""
    n, d = x.shape
    alpha = beta = 1.0
    for _ in range(11):
        tau = alpha / beta
        precision = x.T @ x + tau * np.eye(d)
        m = np.linalg.solve(precision, x.T @ t)
        effective = np.trace(np.linalg.solve(precision, x.T @ x))
        alpha, beta = effective / (m @ m + 1e-5), (n - effective) / (((t - x @ m) ** 2).sum() + 1e-5)
        if abs(alpha / beta - tau) <= 1e-3 * tau:
            break
    _, logdet = np.linalg.slogdet(alpha * np.eye(d) + beta * x.T @ x)
    lost = beta * ((t - x @ m) ** 2).sum() + alpha * m @ m + n * np.log(2 * np.pi)
    fitted = x @ np.linalg.solve(x.T @ x + alpha / beta * np.eye(d), x.T @ t)
    return (d * np.log(alpha) + n * np.log(beta) - logdet - lost) / (2 * n), fitted


def iou(a: np.ndarray, b: np.ndarray) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(one[2] - one[0]) * (one[3] - one[1]) for one in (a, b)]
    return width * height / (sum(areas) - width * height)


@pytest.mark.parametrize("d", [4, 50])
def test_it_is_the_evidence_of_boxes_by_class_and_the_overlap_of_predicted_ones(d: int) -> None:
    x, y, boxes = task(d)
    known = y < 2
    own, label, place = x[known], y[known], boxes[known]
    unified = np.zeros((len(own), 8))
    for row, (c, box) in enumerate(zip(label, place, strict=True)):
        unified[row, 4 * c : 4 * c + 4] = box
    evidence = np.mean([evidence_and_prediction(own, column)[0] for column in unified.T])
    predicted = np.stack([evidence_and_prediction(own, side)[1] for side in place.T], 1)
    overlap = np.mean([iou(a, b) for a, b in zip(place, predicted, strict=True)])
    found = evaluation.evaluate_metric("det_logme", x, y, boxes=boxes)
    assert found.diagnostics == {"unified": pytest.approx(evidence), "iou": pytest.approx(overlap), "objects": 30}
    assert found.score == pytest.approx(evidence + overlap)
    assert evaluation.score("det_logme", x, y, boxes=boxes, mu=0) == pytest.approx(evidence)


def test_features_that_know_the_places_score_higher() -> None:
    x, y, boxes = task(5)
    blind = x.copy()
    blind[:, :2] = np.random.default_rng(1).normal(size=(len(x), 2))
    both = [evaluation.evaluate_metric("det_logme", one, y, boxes=boxes) for one in (x, blind)]
    assert both[0].score > both[1].score and both[0].diagnostics["iou"] > both[1].diagnostics["iou"]


def test_bad_input_is_one_line() -> None:
    x, y, boxes = task(5)
    with pytest.raises(UserError, match="det_logme: 0 rows with a box"):
        evaluation.score("det_logme", x, y, boxes=np.full_like(boxes, np.nan))
    with pytest.raises(UserError, match="det_logme: all boxes are equal"):
        evaluation.score("det_logme", x, y, boxes=np.tile([0.1, 0.2, 0.3, 0.4], (len(x), 1)))
