"""Nulls of a ranking: leave-one-out kNN of each model against raw pixels and the largest class, on the same images."""

import numpy as np
import pytest

import evaluation
from evaluation.ranking.inputs import candidates
from evaluation.ranking.ranking import Ranking
from evaluation.results.p_values import mcnemar


@pytest.fixture(scope="module")
def two_classes() -> tuple[np.ndarray, np.ndarray]:
    """150 rows of which a model that sees the class knows nearly all."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 50)
    return rng.normal(size=(150, 8)) + 3 * np.eye(3, 8)[y], y


def test_models_at_chance_are_not_taken(two_classes) -> None:
    x, y = two_classes
    noise = np.random.default_rng(1).normal(size=(2, 150, 8))
    ranking = evaluation.rank({"a": (noise[0], y), "b": (noise[1], y)}, bootstrap=0)
    assert ranking.decision.taken == "" and "the largest class with 33.3 %" in str(ranking.decision)
    sees = evaluation.rank({"a": (noise[0], y), "sees": (x, y)}, bootstrap=0)
    assert sees.decision.taken == "sees" and "above the largest class with 33.3 %" in str(sees.decision)


def test_the_difference_is_that_of_the_same_images_after_holm(two_classes) -> None:
    x, y = two_classes
    ranking = evaluation.rank({"a": (x, y), "b": (x * [1, 0, 0, 1, 1, 1, 1, 1], y)}, metrics=["knn"], bootstrap=0)
    (null,) = ranking.nulls
    right = evaluation.evaluate_metric("knn", x, y).details.terms.numpy() > 0
    largest = y == 0
    assert null.candidate.name == "the largest class"
    assert null.differences[0].value == pytest.approx(right.mean() - largest.mean())
    assert null.differences[0].p == pytest.approx(min(1, 2 * mcnemar(right, largest))), "Holm over two models"


def test_a_ranked_network_with_random_weights_is_a_null_and_is_not_taken(two_classes) -> None:
    x, y = two_classes
    ranking = evaluation.rank({"random:net": (x, y), "a": (x + 0.01, y)}, bootstrap=0)
    assert {null.candidate.name for null in ranking.nulls} == {"random:net", "the largest class"}
    assert ranking.decision.first.name == "a" and ranking.decision.taken == ""


def test_raw_pixels_are_measured_beside_the_models_and_said_where_they_are_as_good(tmp_path) -> None:
    how = {"image_size": 28, "max_images": 100, "bootstrap": 0, "cache": None, "progress": False}
    ranking = evaluation.rank(["random:narrow_resnet", "random:narrow_resnet:1"], "digits", ["knn"], **how)
    assert "pixels" not in ranking.models
    raw = next(null for null in ranking.nulls if null.candidate.name == "raw pixels")
    assert not any(difference.is_above for difference in raw.differences), "pixels tell digits apart"
    assert any("kNN of raw pixels has " in line for line in ranking.explanation)
    again = Ranking.from_json(ranking.to_json(tmp_path / "ranking.json"))
    read, written = (
        [(null.candidate.name, null.candidate.fact, null.differences) for null in some.nulls]
        for some in (again, ranking)
    )
    assert read == written and str(again.decision) == str(ranking.decision)


def test_raw_pixels_have_their_own_size_whatever_the_models_have(monkeypatch) -> None:
    sizes = []
    whole = candidates.features_of
    monkeypatch.setattr(
        candidates, "features_of", lambda model, *rest: sizes.append(model.image_size) or whole(model, *rest)
    )
    how = {"image_size": 32, "max_images": 40, "bootstrap": 0, "cache": None, "progress": False}
    evaluation.rank(["random:narrow_resnet"], "digits", ["knn"], **how)
    assert sizes == [32, 16]


def test_a_metric_of_numbers_has_no_nulls() -> None:
    rng = np.random.default_rng(0)
    ranking = evaluation.rank({"a": (rng.normal(size=(60, 4)), rng.normal(size=60))}, bootstrap=0)
    assert ranking.nulls == () and ranking.decision.taken == ""
