"""What every protocol takes: Features, or a pair of arrays, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from evaluation.features import as_features, match_labels
from evaluation.features.table import join_splits
from sslkit.errors import UserError

X = np.random.default_rng(0).normal(size=(6, 3))


def test_a_pair_of_arrays() -> None:
    features = as_features((torch.tensor(X).bfloat16(), ["cat", "dog", "cat", "emu", "dog", "cat"]))
    assert features.x.dtype == np.float32 and features.classes == ["cat", "dog", "emu"]
    assert features.y.tolist() == [0, 1, 0, 2, 1, 0] and features.metric == "top1"
    assert as_features((X, np.array([0, 1, 5, 0, 1, 5]))).y.tolist() == [0, 1, 2, 0, 1, 2]
    assert list(as_features((X, np.array([0, 1, 4_000_000_000] * 2))).classes) == ["0", "1", "4000000000"]
    assert list(as_features((X, [("a", 1), ("b", 2)] * 3)).classes) == ["('a', 1)", "('b', 2)"]
    several = as_features((X, np.array([[1, -1], [0, 1], [-1, -1], [1, 1], [1, 1], [-1, 1]])))
    assert several.metric == "map11" and several.y.shape == (6, 2)


def test_names_of_rows_follow_the_rows() -> None:
    y, order = np.arange(6) % 2, np.array([4, 2, 0, 5, 1, 3])
    a, b = as_features((X, y)), as_features((X[order], y[order]))
    assert b.ids.tolist() == a.ids[order].tolist()
    twice = as_features((np.repeat(X[:2], 3, axis=0), y))
    assert len(set(twice.ids.tolist())) == 6


def test_some_rows_have_a_digest_of_their_own() -> None:
    features = as_features((X, np.arange(6) % 2))
    some = features.take(np.array([5, 0]))
    assert some.y.tolist() == [1, 0] and some.ids.tolist() == features.ids[[5, 0]].tolist()
    assert (some.x == features.x[[5, 0]]).all()
    mask = np.array([True, False, False, False, False, True])
    assert features.take(mask).digest == features.take(np.array([0, 5])).digest != some.digest != features.digest


def test_the_test_labels_are_numbered_as_the_training_ones() -> None:
    _, test = match_labels((X, ["b", "a", "c", "a", "b", "c"]), (X[:3], ["c", "b", "c"]))
    assert test.y.tolist() == [2, 1, 2] and test.classes == ["a", "b", "c"]
    _, test = match_labels((X, [0, 1, 5, 0, 1, 5]), (X[:2], [5, 0]))
    assert test.y.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((np.where(X > 1, np.nan, X), [0] * 6), "features are NaN or infinite, the first in row"),
        ((np.ones((6, 3)), [0, 1] * 3), "all 6 rows of features are equal: were the weights loaded"),
        ((X, [0, 1, -1, 0, -1, 1]), r"2 of 6 labels are -1 \(no label\); leave these rows out with features.labelled"),
        ((X, [0, 1, 0]), "6 rows of features and 3 labels"),
        ((X, [0, 1, np.nan, 0, 1, 0]), "labels must be integers or names, found NaN"),
        ((X[0], [0] * 3), r"features must be \(N, D\)"),
        ((X, np.full((6, 2), 3)), r"must be 1 \(yes\), -1 \(no\) and 0"),
        ((X, np.array([[1, 1], [0, 1]] * 3)), r"contain no -1 \(no\), and are not one-hot"),
        ((X, ["a", None, "b", "a", "a", "b"]), "some labels are None or NaN"),
        (X, "must be Features or a pair of arrays"),
        ((["a", "b"], [0, 1]), "features must be numbers"),
        (([[1, 2], [3]], [0, 1]), "features must be numbers"),
    ],
)
def test_bad_features_are_refused(pair: tuple, message: str) -> None:
    with pytest.raises(UserError, match=message):
        as_features(pair, "train")


def test_unlabelled_rows_can_be_left_out() -> None:
    features = replace(as_features((X, [0, 1, 0, 1, 0, 1])), y=np.array([0, -1, 1, -1, 0, 1]))
    assert features.labelled().y.tolist() == [0, 1, 0, 1]
    assert as_features(features.labelled()).x.shape == (4, 3)


def test_classes_of_one_name_are_matched_by_number_or_not_at_all() -> None:
    train = replace(as_features((X, [0, 1, 2, 0, 1, 2])), classes=["crane", "crane", "cat"])
    _, test = match_labels(train, train.take(np.arange(3)))
    assert test.y.tolist() == [0, 1, 2]
    with pytest.raises(UserError, match="two classes are called crane"):
        match_labels(train, replace(train, classes=["cat", "crane", "crane"]))


def test_two_splits_become_one_with_the_classes_of_the_first() -> None:
    first = replace(as_features((X[:3], ["dog", "cat", "cat"])), split="train", ids=np.array(["a", "b", "c"]))
    second = replace(as_features((X[3:], ["cat", "dog", "dog"])), split="val", ids=np.array(["a", "d", "e"]))
    second = replace(second, classes=["dog", "cat"], y=1 - second.y)
    both = join_splits(first, second)
    assert [both.classes[label] for label in both.y] == ["dog", "cat", "cat", "cat", "dog", "dog"]
    assert both.ids.tolist() == ["train/a", "train/b", "train/c", "val/a", "val/d", "val/e"]
    assert np.isin(both.images, second.take(np.array([0, 2])).images).tolist() == [False] * 3 + [True, False, True]


def test_classes_that_only_the_test_has_are_named() -> None:
    with pytest.raises(UserError, match="test has classes that train has no image of: emu; leave their rows out"):
        match_labels((X, ["a", "b"] * 3), (X[:2], ["a", "emu"]))
    with pytest.raises(UserError, match="train has 3 features a row and test 2: two models"):
        match_labels((X, [0, 1] * 3), (X[:, :2], [0, 1] * 3))


@pytest.mark.parametrize("kind", [int, float, bool])
def test_one_hot_labels_are_classes(kind: type) -> None:
    y = np.array([0, 2, 1, 0, 2, 1])
    assert as_features((X, np.eye(3, dtype=kind)[y]), "train").y.tolist() == y.tolist()
