"""The linear probe where images of the test are in the training part too."""

from dataclasses import replace

import numpy as np
from sklearn.datasets import load_digits

from evaluation.features import as_features
from evaluation.protocols.linear import linear_probe

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
    assert not apart.leaky and apart.details["in_train"] == 0
    assert linear_probe(train, replace(train, digest="another"), c=1.0).details["in_train"] == 500


def test_one_twin_in_a_hundred_is_counted_and_not_called_leaky() -> None:
    train, test = as_features(TRAIN), as_features(TEST)
    rows = np.append(np.arange(150), 0)
    mixed = replace(test, x=np.concatenate([test.x[:150], train.x[:1]]), y=np.append(test.y[:150], train.y[0]))
    mixed = replace(mixed, ids=np.append(test.ids[rows[:150]], train.ids[0]))
    found = linear_probe(train, mixed, c=1.0)
    assert found.details["in_train"] == 1 and not found.leaky
