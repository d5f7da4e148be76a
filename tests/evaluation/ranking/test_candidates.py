"""Models of one ranking: the same images, or one error that says what differs."""

import numpy as np
import pytest
from torch import nn

from evaluation.ranking.candidates import of_arrays, of_models
from sslkit.errors import UserError

X = np.random.default_rng(0).normal(size=(6, 3))
Y = np.array([0, 0, 1, 1, 2, 2])
SEVERAL = np.eye(6)[:, :2]


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ((X, Y), (X[:4], Y[:4]), "6 images and 4"),
        ((X[:4], Y[:4]), (X, Y), "4 images and 6"),
        ((X[:4], SEVERAL[:4]), (X, SEVERAL), "4 images and 6"),
        ((X, Y), (X, SEVERAL), "classes and numbers"),
        ((X, SEVERAL), (X, Y), "classes and numbers"),
        ((X, Y), (X, Y[::-1].copy()), "other labels from row 0 on"),
        ((X, SEVERAL), (X, 1 - SEVERAL), "other labels from row 0 on"),
        ((X, SEVERAL), (X, np.eye(6)[:, :3]), r"numbers of shape \(6, 2\) and \(6, 3\)"),
        ((X, list("aabbcc")), (X, list("aabbdd")), "a class 'c' and 'd' in its place"),
        ((X, list("aabbcc")), (X, list("aabbbb")), "a class 'c' and None in its place"),
    ],
)
def test_other_images_are_refused(one: tuple, other: tuple, said: str) -> None:
    with pytest.raises(UserError, match=f"first and second were not given the same labels .*: {said}"):
        of_arrays({"first": one, "second": other})


def test_the_same_images_are_taken_and_errors_bear_the_models_name() -> None:
    assert len(of_arrays({"a": (X, Y), "b": (2 * X, Y.tolist())})) == 2
    assert len(of_arrays({"a": (X, SEVERAL), "b": (X[:, :2], SEVERAL)})) == 2
    with pytest.raises(UserError, match="b: features are NaN"):
        of_arrays({"a": (X, Y), "b": (X * np.nan, Y)})


def test_channels_are_asked_of_the_model_too(tmp_path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    how = {"image_size": 8, "in_chans": 1, "max_images": 20, "cache": tmp_path}
    (found,) = of_models({"net": net}, "digits", **how).values()
    assert found.sample.x.shape == (20, 3)
