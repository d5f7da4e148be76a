"""What data sets are judged by, against scikit-learn and the VOC definition written out."""

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    precision_recall_curve,
    top_k_accuracy_score,
)

from evaluation.results.measures import ap11, chance, in_top, map11, measure
from sslkit.errors import UserError
from sslkit.numerics.ties import top_class

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(200, 12)).round(1)  # with ties
Y = RNG.integers(12, size=200)


def eleven_points(positive: np.ndarray, scores: np.ndarray) -> float:
    precision, recall, _ = precision_recall_curve(positive, scores)
    precision, recall = precision[:-1], recall[:-1]  # without the point (0, 1) that scikit-learn adds
    tenths = [precision[recall * 10 >= tenth - 1e-9].max() for tenth in range(11)]
    return float(np.mean(tenths))


def test_top1_and_top5() -> None:
    estimate, others, right = measure(SCORES, Y, "top1")
    assert (right == (SCORES.argmax(1) == Y)).all()
    assert estimate.value == right.mean() and estimate.kind == "wilson over images"
    distinct = SCORES + 1e-6 * np.arange(12)[::-1]  # of equal ones the first counts
    assert others["top5"].value == pytest.approx(top_k_accuracy_score(Y, distinct, k=5, labels=range(12)))
    assert (in_top(SCORES, Y, 1) == right).all()
    assert "top5" not in measure(SCORES[:, :5], Y % 5, "top1")[1]


def test_mean_per_class_is_balanced_accuracy() -> None:
    y = np.where(RNG.random(200) < 0.7, 0, Y)
    estimate, others, right = measure(SCORES, y, "mean_per_class")
    assert estimate.value == pytest.approx(balanced_accuracy_score(y, SCORES.argmax(1)))
    assert others["top1"].value == right.mean() != estimate.value


def test_eleven_point_precision_is_voc07s() -> None:
    for positives in (1, 3, 10, 50, 199, 200):
        positive = np.arange(200) < positives
        assert ap11(SCORES[:, 0], positive) == pytest.approx(eleven_points(positive, SCORES[:, 0]), abs=1e-12)
    assert ap11(np.array([3.0, 2.0, 1.0]), np.array([True, False, True])) == pytest.approx((6 + 5 * 2 / 3) / 11)


def test_map_leaves_out_what_does_not_count() -> None:
    y = RNG.choice([-1, 1, 0], size=(200, 4), p=[0.6, 0.3, 0.1]).astype(np.int8)
    y[:, 3] = -1  # no positive image
    expected = [eleven_points(y[y[:, k] != 0, k] > 0, SCORES[y[:, k] != 0, k]) for k in range(3)]
    assert map11(SCORES[:, :4], y) == pytest.approx(np.mean(expected), abs=1e-12)
    estimate, others, right = measure(SCORES[:, :4], y, "map11")
    assert estimate.value == pytest.approx(np.mean(expected)) and right is None and list(others) == ["map"]
    assert estimate.interval[0] < estimate.value < estimate.interval[1] and estimate.kind == "jackknife over images"
    oracle = [average_precision_score(y[y[:, k] != 0, k] > 0, SCORES[y[:, k] != 0, k]) for k in range(3)]
    assert others["map"].value == pytest.approx(np.mean(oracle), abs=1e-12)
    levels = chance(y)
    assert levels["map"] == pytest.approx(0.33, abs=0.05) and levels["map11"] > levels["map"], "of random scores"


def test_scores_that_rounding_parts_are_equal() -> None:
    """Each score moved by an ulp: equal ones are still retrieved together, and of them the first class is given."""
    noise = 1 + RNG.choice([-1, 0, 1], SCORES.shape) * 2.0**-52
    rough = SCORES * noise
    assert (top_class(rough) == SCORES.argmax(1)).all() and (rough.argmax(1) != SCORES.argmax(1)).any()
    for k in (1, 3, 5):
        assert (in_top(rough, Y, k) == in_top(SCORES, Y, k)).all()
    positive = Y < 3
    for scale in (1e-20, 1.0, 1e20):
        for column in range(12):
            assert ap11(scale * rough[:, column], positive) == ap11(SCORES[:, column], positive)
    rough = SCORES.astype("f") * (1 + RNG.choice([-1, 0, 1], SCORES.shape) * 2.0**-23).astype("f")
    assert rough.dtype == np.float32 and (top_class(rough) == SCORES.argmax(1)).all()


def test_without_a_positive_test_image_there_is_no_average_precision() -> None:
    none = -np.ones((10, 3), np.int8)
    with pytest.raises(UserError, match="no test image has a class"):
        measure(SCORES[:10, :3], none, "map11")
    one = none.copy()
    one[SCORES[:10, 1].argsort()[5], 1] = 1  # its precision depends on the images that are drawn above it
    estimate, _, _ = measure(SCORES[:10, :3], one, "map11")
    assert estimate.interval is None and estimate.kind == "no interval, a class has 1 of 10 images: it takes about 200"
