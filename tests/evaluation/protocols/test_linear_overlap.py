"""The linear probe where images of the test are in the training part too."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

from evaluation.features import as_features
from evaluation.learners.linear_parts import in_both
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


@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_one_image_is_one_though_another_batch_rounds_it_otherwise(scale: float, offset: float) -> None:
    """Features off by up to 4 ulp of float32 are those of one image; the next image's are not, far from 0 neither."""
    x = ((X[:80] + offset) * scale).astype("f")
    noise = 1 + np.random.default_rng(0).integers(-4, 5, x.shape) * 2.0**-24
    train = as_features((x, Y[:80]))
    rounded = replace(train, x=(x * noise).astype("f"), digest="another batch")
    others = replace(train, x=np.roll(x, 1, axis=0), digest="other images")
    assert in_both(train, rounded)[0].tolist() == in_both(train, train)[0].tolist() == np.argsort(train.ids).tolist()
    assert len(in_both(train, others)[0]) == 0 and len(in_both(train, rounded.take(np.arange(1)))[0]) == 1


def test_validation_images_that_are_in_train_are_said() -> None:
    train, test = as_features(TRAIN), as_features(TEST)
    with pytest.warns(UserWarning, match="20 of the 200 validation images are in train too"):
        linear_probe(train, test, val=as_features((X[480:680], Y[480:680])))
    with pytest.warns(UserWarning, match="500 of the 500 validation images"):
        linear_probe(train, test, val=train)
