"""Measures of numbers are scikit-learn's, and the interval of a prediction holds as many new images as it says."""

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from evaluation.results.comparison import compare
from evaluation.results.decisions import decide
from evaluation.results.measures import right_by_constant
from evaluation.results.numbers import LEVEL, MAE, R2, RMSE, half_width, measure_numbers, share_of_variance
from evaluation.results.result import Result, rows_digest
from sslkit.errors import UserError


def draw(rng: np.random.Generator, n: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    predicted = share**0.5 * rng.standard_normal(n)
    return 50 + 8 * predicted, 50 + 8 * (predicted + (1 - share) ** 0.5 * rng.standard_normal(n))


@pytest.mark.parametrize("share", [0.0, 0.6])
def test_they_are_those_of_scikit_learn(share: float) -> None:
    predicted, y = draw(np.random.default_rng(0), 90, share)
    value, errors, shares = measure_numbers(predicted, y, unit="years")
    assert value.value == pytest.approx(r2_score(y, predicted), abs=1e-12) == pytest.approx(shares.mean(), abs=1e-12)
    assert errors[MAE].value == pytest.approx(mean_absolute_error(y, predicted))
    assert errors[RMSE].value == pytest.approx(root_mean_squared_error(y, predicted))
    assert (value.unit, errors[MAE].unit, value.n) == ("fraction", "years", 90)
    for estimate in (value, *errors.values()):
        assert estimate.interval[0] < estimate.value < estimate.interval[1] and estimate.kind.endswith("over images")


def test_groups_are_drawn_together_and_few_images_have_no_interval() -> None:
    predicted, y = draw(np.random.default_rng(1), 40, 0.5)
    alone = measure_numbers(predicted, y)[0]
    grouped = measure_numbers(*(np.tile(values, 2) for values in (predicted, y, np.arange(40))))
    assert grouped[0].interval == pytest.approx(alone.interval) and "40 groups" in grouped[0].kind
    few = measure_numbers(predicted[:12], y[:12])[0]
    assert few.interval is None and "12 images: it takes about 30" in few.kind


def test_labels_that_are_alike_cannot_be_explained() -> None:
    with pytest.raises(UserError, match="the label is 3 for all of the 4 test images"):
        share_of_variance(np.arange(4.0), np.full(4, 3.0))


@pytest.mark.parametrize("size", [1, 4])
def test_the_interval_of_a_prediction_holds_nine_in_ten_new_images(size: int) -> None:
    """Of new images, or images of new groups, whose errors are alike."""
    rng, held, many = np.random.default_rng(2), [], 4000

    def errors(groups: int) -> np.ndarray:
        return (np.repeat(rng.standard_normal(groups), size) + rng.standard_normal(groups * size)) ** 3

    for _ in range(200):
        half = half_width(errors(30), np.repeat(np.arange(30), size))
        held.append(float((np.abs(errors(many)) <= half).mean()))
    assert LEVEL - 0.01 <= np.mean(held) <= LEVEL + 0.04


def test_too_few_images_have_no_interval_of_a_prediction() -> None:
    errors = np.arange(9.0)
    assert half_width(errors[:8]) is None and half_width(errors) == 8.0
    assert half_width(np.arange(40.0), np.zeros(40, int)) is None  # of one group
    assert half_width(-np.arange(99.0)) == 89.0  # the 90th smallest of 99


def result(name: str, predicted: np.ndarray, y: np.ndarray, groups: np.ndarray | None = None) -> Result:
    value, others, shares = measure_numbers(predicted, y, groups)
    about = {"protocol": "linear", "recipe": "", "metric": R2, "model": name, "data": "ages", "others": others}
    about |= {"outcomes": shares, "groups": groups, "largest": right_by_constant(y, y[:50])}
    return Result.from_estimate(value, **about, paired_on=rows_digest(np.arange(len(y)), y))


@pytest.mark.parametrize("size", [1, 4])
def test_a_model_is_taken_if_it_is_above_the_mean_and_raw_pixels(size: int) -> None:
    rng, groups = np.random.default_rng(3), np.repeat(np.arange(50), 4) if size > 1 else None
    good, y = draw(rng, 200, 0.7)
    weak = 50 + 0.2 * (good - 50)
    decision, pairs = decide([result("a", good, y, groups), result("pixels", weak, y, groups)])
    assert decision.taken == "a" and "the mean" in str(decision) and "raw pixels" in str(decision)
    assert {pair.test for pair in pairs} == ({"paired t"} if size == 1 else {"randomisation over groups"})
    coin = 50 + 0.1 * rng.standard_normal(200)
    assert "take none" in str(decide([result("b", coin, y, groups), result("pixels", coin, y, groups)])[0])
    far = compare(result("c", good + 100, y, groups), result("a", good, y, groups))
    assert far.difference < -1 and far.interval[0] <= far.difference <= far.interval[1]
