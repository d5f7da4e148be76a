"""Probes in folds: against scikit-learn's, whole groups in one fold, and the same folds for any order of the images."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from evaluation.learners.cross_fit import ABSENT, FOLDS, STRENGTHS, cross_fit, folds_of
from sslkit.runtime.context import Runtime

CPU = Runtime(device="cpu")


def blobs(n: int, classes: int = 3, width: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features around a centre of each class, labels, and names."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    x = rng.normal(size=(classes, width))[y] + 1.5 * rng.normal(size=(n, width))
    return x.astype(np.float32), y, np.array([f"image{row:04d}" for row in range(n)])


def test_scores_are_those_of_scikit_learn_on_the_same_folds() -> None:
    x, y, ids = blobs(120)
    fitted = cross_fit(x, y, ids, None, "top1", CPU)
    folds = folds_of(y, ids, None, 0)
    assert fitted.c in STRENGTHS and fitted.rows.tolist() == list(range(120))
    expected = np.empty((120, 3))
    for fold in range(FOLDS):
        learned, judged = folds != fold, folds == fold
        mean, deviation = x[learned].mean(0), x[learned].std(0)
        oracle = LogisticRegression(C=fitted.c, tol=1e-8, max_iter=5000).fit(
            (x[learned] - mean) / deviation, y[learned]
        )
        expected[judged] = oracle.predict_log_proba((x[judged] - mean) / deviation)
    ours = fitted.scores - np.logaddexp.reduce(fitted.scores, axis=1, keepdims=True)
    np.testing.assert_allclose(ours, expected, atol=2e-2)
    assert (ours.argmax(1) == expected.argmax(1)).mean() > 0.98


def test_the_strength_has_the_highest_accuracy_then_the_lowest_cross_entropy() -> None:
    x, y, ids = blobs(90)
    fitted = cross_fit(x, y, ids, None, "top1", CPU)
    value, loss = fitted.tried[fitted.c]
    assert value == max(value for value, _ in fitted.tried.values())
    assert loss == min(other for same, other in fitted.tried.values() if same == value)
    assert value == (fitted.scores.argmax(1) == y[fitted.rows]).mean()


def test_a_group_is_in_one_fold_and_no_image_is_judged_by_a_probe_that_saw_its_group() -> None:
    _, y, ids = blobs(100, classes=2)
    groups = np.arange(100) // 4
    folds = folds_of(y, ids, groups, 0)
    assert all(len(set(folds[groups == group])) == 1 for group in range(25)) and set(folds) == set(range(FOLDS))


def test_objects_with_labels_by_coin_are_at_chance_where_their_pictures_stay_together() -> None:
    rng = np.random.default_rng(1)
    of_object = np.repeat(np.arange(60), 8)
    x = (5 * rng.normal(size=(60, 90))[of_object] + rng.normal(size=(480, 90))).astype(np.float32)
    y = rng.integers(2, size=60)[of_object]
    ids = np.array([f"{row:03d}" for row in range(480)])
    apart, together = (cross_fit(x, y, ids, groups, "top1", CPU) for groups in (None, of_object))
    right = [(fitted.scores.argmax(1) == y[fitted.rows]).mean() for fitted in (apart, together)]
    assert right[0] > 0.95 and right[1] < 0.7


def test_folds_do_not_depend_on_the_order_of_the_images_and_do_on_the_seed() -> None:
    _, y, ids = blobs(60)
    order = np.random.default_rng(0).permutation(60)
    assert (folds_of(y[order], ids[order], None, 0) == folds_of(y, ids, None, 0)[order]).all()
    assert (folds_of(y, ids, None, 1) != folds_of(y, ids, None, 0)).any()


def test_a_class_of_one_image_has_a_score_below_all_others_where_it_was_not_learned() -> None:
    x, y, ids = blobs(61, classes=2)
    y[-1] = 2
    fitted = cross_fit(x, y, ids, None, "top1", CPU)
    assert fitted.scores.shape == (61, 3)
    assert fitted.scores[-1, 2] == pytest.approx(fitted.scores[-1, :2].min() - ABSENT)


def test_several_labels_an_image() -> None:
    x, y, ids = blobs(90)
    several = np.where(np.eye(3, dtype=int)[y] > 0, 1, -1).astype(np.int8)
    fitted = cross_fit(x, several, ids, None, "map11", CPU)
    assert fitted.scores.shape == (90, 3) and (fitted.scores.argmax(1) == y).mean() > 0.6
