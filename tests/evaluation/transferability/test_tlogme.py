"""TLogME: the mean of two LogMEs of the rows that have a box."""

import numpy as np
import pytest

import evaluation
from evaluation.ranking.inputs.candidates import draw_images
from evaluation.ranking.inputs.objects import BACKGROUND, open_objects
from sslkit.errors import UserError


def task(d: int = 5, n: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels (2 is the background) and boxes; the first feature knows the left side."""
    rng = np.random.default_rng(0)
    x, y, boxes = rng.normal(size=(n, d)), np.arange(n) % 3, rng.uniform(size=(n, 4))
    boxes[:, 0] = 0.5 + 0.1 * x[:, 0]
    boxes[y == 2] = np.nan
    return x, y, boxes


@pytest.mark.parametrize("d", [5, 60])
def test_it_is_the_mean_of_both_logmes_without_the_background(d: int) -> None:
    x, y, boxes = task(d)
    objects = y < 2
    classes = evaluation.score("logme", x[objects], y[objects])
    places = evaluation.score("logme", x[objects], boxes[objects], targets="regression")
    found = evaluation.evaluate_metric("tlogme", x, y, boxes=boxes)
    assert found.score == pytest.approx((classes + places) / 2, rel=1e-10)
    assert found.diagnostics == {"classes": pytest.approx(classes), "places": pytest.approx(places), "objects": 27}


def test_features_that_know_the_places_score_higher() -> None:
    x, y, boxes = task()
    blind = x.copy()
    blind[:, 0] = np.random.default_rng(1).normal(size=len(x))
    assert evaluation.score("tlogme", x, y, boxes=boxes) > evaluation.score("tlogme", blind, y, boxes=boxes)


def test_units_of_the_boxes_move_all_models_alike() -> None:
    x, y, boxes = task()
    other = np.random.default_rng(2).normal(size=x.shape)
    moved = [
        evaluation.score("tlogme", one, y, boxes=200 * boxes) - evaluation.score("tlogme", one, y, boxes=boxes)
        for one in (x, other)
    ]
    assert moved[0] == pytest.approx(-np.log(200) / 2, abs=0.05) and moved[1] == pytest.approx(moved[0], abs=0.05)


def test_a_detection_set_has_the_boxes_and_other_tasks_a_note() -> None:
    split = draw_images(open_objects("clipart_boxes", "test"), 120, 0)
    background = np.array([split.classes[label] == BACKGROUND for label in split.y])
    assert (np.isnan(split.boxes).all(1) == background).all() and (~background).any()
    inside = split.boxes[~background]
    assert (inside >= 0).all() and (inside <= 1).all() and (inside[:, 2:] > inside[:, :2]).all()
    ranking = evaluation.rank(
        ["random:narrow_resnet"], split, ["tlogme", "logme"], image_size=32, split="test", bootstrap=2
    )
    assert np.isfinite(ranking.scores).all()
    plain = evaluation.rank({"a": task()[:2]}, metrics=["tlogme", "logme"], bootstrap=0)
    assert np.isnan(plain.scores[0, 0]) and "no TLogME" in plain.notes[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x, y, boxes: (x, y, None), "needs boxes"),
        (lambda x, y, boxes: (x, y, boxes[:, :3]), r"boxes must be \(N, 4\)"),
        (lambda x, y, boxes: (x, y, boxes[:9]), "9 rows of boxes and 40 labels"),
        (lambda x, y, boxes: (x, y, np.full_like(boxes, np.nan)), "0 rows with a box"),
        (lambda x, y, boxes: (x, y, np.tile([0.1, 0.2, 0.3, 0.4], (40, 1))), "all boxes are equal"),
    ],
)
def test_bad_input_is_one_line(change, said: str) -> None:
    x, y, boxes = change(*task())
    with pytest.raises(UserError, match=said):
        evaluation.score("tlogme", x, y, boxes=boxes)
