"""The linear probe where images of the test are in the training part too."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

import evaluation
from evaluation.features import as_features
from evaluation.protocols.linear import linear_probe
from evaluation.results.unseen import UNSEEN

X, Y = load_digits(return_X_y=True)
TRAIN, TEST = (X[:500], Y[:500]), (X[500:1000], Y[500:1000])


def test_images_of_test_in_train_make_it_leaky() -> None:
    train, test = as_features(TRAIN), as_features((X[450:900], Y[450:900]))
    found = linear_probe(train, test, c=1.0)
    assert found.leaky and found.details["in_train"] == 50
    val = as_features((X[880:1200], Y[880:1200]))
    assert linear_probe(train, test, val=val, c=1.0).details["in_train"] == 70
    same_names = replace(as_features(TEST), ids=train.ids)
    apart = linear_probe(train, same_names, c=1.0)
    assert not apart.leaky and apart.details["in_train"] == 0 and UNSEEN not in apart.others
    assert linear_probe(train, replace(train, digest="another"), c=1.0).details["in_train"] == 500


def test_the_number_stands_again_without_the_images_that_were_trained_on() -> None:
    train, test = as_features(TRAIN), as_features((X[450:900], Y[450:900]))
    found = linear_probe(train, test, c=1.0)
    rest = linear_probe(train, test.take(np.arange(50, 450)), c=1.0)
    assert found.others[UNSEEN] == rest.estimate and rest.n == 400
    cell = evaluation.table([found], "markdown").splitlines()[-1]
    assert f"; without 50 images of train: {100 * rest.value:.1f} %" in cell
    assert "; all 500 images are of train" in evaluation.table([linear_probe(train, train, c=1.0)], "markdown")


def test_one_twin_in_a_hundred_is_counted_and_not_called_leaky() -> None:
    train, test = as_features(TRAIN), as_features(TEST)
    rows = np.append(np.arange(150), 0)
    mixed = replace(test, x=np.concatenate([test.x[:150], train.x[:1]]), y=np.append(test.y[:150], train.y[0]))
    mixed = replace(mixed, ids=np.append(test.ids[rows[:150]], train.ids[0]))
    found = linear_probe(train, mixed, c=1.0)
    assert found.details["in_train"] == 1 and not found.leaky


def test_copies_stay_on_one_side_of_the_held_out_part() -> None:
    """Each image three times under other names, with labels by coin: a probe that chose by copies takes no penalty."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 60)).astype("f"), rng.integers(0, 2, 80)
    ids = np.array([f"{rng.integers(10**9)}.png" for _ in range(240)])
    thrice = replace(as_features((np.tile(x, (3, 1)), np.tile(y, 3))), ids=ids)
    known = replace(thrice, pixel_digests=np.tile(np.arange(80), 3))
    test = as_features((rng.normal(size=(40, 60)), rng.integers(0, 2, 40)))
    chosen = [max(one["value"] for one in linear_probe(one, test).details["tried"]) for one in (thrice, known)]
    assert chosen[0] > 0.9 and chosen[1] < 0.75, chosen


def test_validation_images_that_are_in_train_are_said() -> None:
    train, test = as_features(TRAIN), as_features(TEST)
    with pytest.warns(UserWarning, match="20 of the 200 validation images are in train too"):
        linear_probe(train, test, val=as_features((X[480:680], Y[480:680])))
    with pytest.warns(UserWarning, match="500 of the 500 validation images"):
        linear_probe(train, test, val=train)
