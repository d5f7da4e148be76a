"""NumPy archives: what they may hold, and what is said of those that do not."""

import numpy as np
import pytest
import torch

from sslkit.data.sources.named import open_images, splits
from sslkit.errors import UserError


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_pixels_name_the_file_and_the_row(tmp_path, value: float) -> None:
    x = np.zeros((9, 4, 4), np.float32)
    x[6, 1, 2] = x[8, 0, 0] = value
    np.savez(tmp_path / "broken.npz", x_train=x)
    with pytest.raises(UserError, match=r"broken\.npz: x_train has NaN.* 2 of 9 rows, the first is row 6"):
        open_images(tmp_path / "broken.npz")


def test_npz_splits_and_labels_by_name(tmp_path) -> None:
    file = tmp_path / "pets.npz"
    x = np.random.default_rng(0).integers(0, 256, (5, 4, 4, 3), dtype=np.uint8)
    y_train = np.array(["dog", "cat", "dog"])
    np.savez(file, x_train=x[:3], y_train=y_train, x_test=x[3:], y_test=np.array(["eel", "cat"]))
    assert splits(str(file)) == ("train", "test")
    train, test = (open_images(file, split=split) for split in ("train", "test"))
    assert train.classes == test.classes == ["cat", "dog", "eel"]
    assert train.labels.tolist() == [1, 0, 1] and test.labels.tolist() == [2, 0]
    assert torch.equal(test[0]["images"], torch.from_numpy(x[3]).permute(2, 0, 1))
    with pytest.raises(UserError, match="no split 'val'"):
        open_images(file, split="val")


def test_npz_of_images_and_labels_with_names_and_unlabelled_rows(tmp_path) -> None:
    x = np.zeros((3, 4, 4), np.uint8)
    np.savez(tmp_path / "a.npz", images=x, labels=np.array([[1], [-1], [0]]), classes=["ant", "bee", "cow"])
    named = open_images(tmp_path / "a.npz")
    assert named.labels.tolist() == [1, -1, 0] and named.classes == ["ant", "bee", "cow"]
    np.savez(tmp_path / "b.npz", x=x, y=np.array([7, -1, 3]))
    numbered = open_images(tmp_path / "b.npz")
    assert numbered.labels.tolist() == [1, -1, 0] and numbered.classes == ["3", "7"]
    np.savez(tmp_path / "c.npz", x=x)
    bare = open_images(tmp_path / "c.npz")
    assert bare.labels is None and bare.classes is None and bare[0]["label"] == -1


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool])
def test_several_classes_an_image_are_yes_or_no(tmp_path, dtype: type) -> None:
    x, y = np.zeros((3, 4, 4), np.uint8), np.array([[1, 0], [1, 1], [0, 0]], dtype)
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x[:1], y_test=y[:1], classes=["ant", "bee"])
    images = open_images(tmp_path / "a.npz")
    assert images.labels is None and images.classes == ["ant", "bee"]
    assert images.multi_labels.tolist() == [[1, -1], [1, 1], [-1, -1]] and images.multi_labels.dtype == np.int8
    assert images[0]["label"] == -1


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_of_minus_one_and_zero_the_file_says_which_is_not_known(tmp_path, dtype: type) -> None:
    """-1 is uncertain in CheXpert and no in VOC, in whatever split it stands."""
    x, y = np.zeros((2, 4, 4), np.uint8), {"y_train": [[1, 0], [0, 1]], "y_test": [[-1, 0], [1, 1]]}
    both = {"x_train": x, "x_test": x, **{name: np.array(labels, dtype) for name, labels in y.items()}}
    np.savez(tmp_path / "a.npz", **both)
    for split in ("train", "test"):
        with pytest.raises(UserError, match=r"either -1 is no and 0 not known.* add the array not_known, 0 or -1"):
            open_images(tmp_path / "a.npz", split=split)
    np.savez(tmp_path / "voc.npz", **both, not_known=0)
    assert open_images(tmp_path / "voc.npz").multi_labels.tolist() == [[1, 0], [0, 1]]
    assert open_images(tmp_path / "voc.npz", split="test").multi_labels.tolist() == [[-1, 0], [1, 1]]
    np.savez(tmp_path / "chexpert.npz", **both, not_known=-1)
    assert open_images(tmp_path / "chexpert.npz").multi_labels.tolist() == [[1, -1], [-1, 1]]
    assert open_images(tmp_path / "chexpert.npz", split="test").multi_labels.tolist() == [[0, -1], [1, 1]]
    np.savez(tmp_path / "wrong.npz", **both, not_known=2)
    with pytest.raises(UserError, match="not_known is 2; it is the label that means so, -1 or 0"):
        open_images(tmp_path / "wrong.npz")


def test_several_labels_without_a_zero_or_with_holes(tmp_path) -> None:
    x = np.zeros((2, 4, 4), np.uint8)
    np.savez(tmp_path / "two.npz", x=x, y=[[1, -1], [-1, -1]])
    with pytest.warns(UserWarning, match="its labels are 1 and -1, which is read as no"):
        assert open_images(tmp_path / "two.npz").multi_labels.tolist() == [[1, -1], [-1, -1]]
    np.savez(tmp_path / "holes.npz", x=x, y=[[1, np.nan], [0, 1]])
    assert open_images(tmp_path / "holes.npz").multi_labels.tolist() == [[1, 0], [-1, 1]]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pictures": np.zeros((2, 4, 4), np.uint8)}, "has the keys pictures; images are looked for under x_train"),
        ({"x": np.array([{}, {}], dtype=object)}, "x cannot be read: .*pickle"),
        ({"x": np.zeros((2, 4), np.uint8)}, r"has shape \(2, 4\)"),
        ({"x": np.zeros((2, 9, 5, 7), np.uint8)}, "the channels may be first or last"),
        ({"x": np.zeros((0, 4, 4), np.uint8)}, "has no images"),
        ({"x": np.array([["a"]])}, "holds <U1; pixels are integers or floats"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": np.arange(3)}, "2 images and 3 labels"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": np.array([0.5, 1])}, "y holds numbers such as 0.5"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": [0, 5], "classes": ["a"]}, "there are 1 classes"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": np.full((2, 3), 2)}, "1 for yes and 0 for no"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": np.ones((2, 3), int), "classes": ["a"]}, "labels are of 3 classes"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": np.ones((5, 3), int)}, "2 images and 5 labels"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": np.full((2, 3), 0.5)}, "or .N, K. of 0 and 1"),
    ],
)
def test_what_an_npz_must_hold(tmp_path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(UserError, match=message):
        open_images(tmp_path / "bad.npz")


def test_a_damaged_npz_is_refused(tmp_path) -> None:
    file = tmp_path / "cut.npz"
    np.savez(file, x=np.zeros((50, 8, 8), np.uint8))
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"cut.npz is not a readable .npz"):
        open_images(file)
    np.save(tmp_path / "bare.npy", np.zeros(3))
    (tmp_path / "bare.npy").rename(tmp_path / "bare.npz")
    with pytest.raises(UserError, match="one bare array"):
        open_images(tmp_path / "bare.npz")


@pytest.mark.parametrize(
    ("given", "labels", "classes"),
    [
        (np.array([0.0, 2.0, np.nan, 1.0], np.float32), [0, 2, -1, 1], ["0", "1", "2"]),
        (np.array([True, False, True, True]), [1, 0, 1, 1], ["False", "True"]),
        (np.array([10, -1, 9, 9]), [1, -1, 0, 0], ["9", "10"]),
        (np.array(["b", "a", "", "a"]), [1, 0, -1, 0], ["a", "b"]),
        (np.array([[3.0], [1.0], [3.0], [1.0]]), [1, 0, 1, 0], ["1", "3"]),
    ],
)
def test_whole_floats_yes_or_no_and_missing_labels(tmp_path, given: np.ndarray, labels: list, classes: list) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 4, 4), np.uint8), y=given)
    images = open_images(tmp_path / "a.npz")
    assert images.labels.tolist() == labels and images.classes == classes


@pytest.mark.parametrize("more", [{}, {"classes": ["no", "yes"]}])
def test_two_classes_written_as_minus_one_and_one_are_said(tmp_path, more: dict) -> None:
    x = np.zeros((4, 4, 4), np.uint8)
    np.savez(tmp_path / "a.npz", x_train=x, y_train=[1, -1, -1, -1], **more)
    with pytest.warns(UserWarning, match="3 of 4 labels are negative, which means none, and all others are 1: for two"):
        images = open_images(tmp_path / "a.npz")
    assert (images.labels == -1).sum() == 3


def test_names_of_train_and_test_are_compared_as_people_read_them(tmp_path) -> None:
    x = np.zeros((2, 4, 4), np.uint8)
    arrays = {"x_train": x, "y_train": ["Cat", "dog"], "x_test": x, "y_test": ["dog", "cat"]}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.warns(UserWarning, match="'Cat' and 'cat' are one class"):
        test = open_images(tmp_path / "a.npz", split="test")
    assert test.classes == ["Cat", "dog"] and test.labels.tolist() == [1, 0]
