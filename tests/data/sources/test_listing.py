"""Classes and splits of the files of a folder, and the lines on what may be meant otherwise."""

import warnings
from pathlib import Path

import pytest
from PIL import Image

from sslkit.data.sources.folder import FolderImages
from sslkit.data.sources.named import open_images


def write(path: Path, value: int = 0) -> Path:
    """A gray image of one value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), value).save(path)
    return path


def names_of(images: FolderImages) -> list[str]:
    return [images.image_name(row) for row in range(len(images))]


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("Cat", "cat"),
        ("guinea_pig", "guinea pig"),
        ("jalapen\u0303o", "jalape\u00f1o"),  # as macOS writes it, and as others do
        ("STOP", "Stop"),
        ("big  dog", "Big_Dog"),
    ],
)
def test_classes_that_people_read_as_one_are_one(train: str, test: str, tmp_path) -> None:
    for name in (f"train/{train}/1.png", "train/other/1.png", f"test/{test}/1.png", "test/other/1.png"):
        write(tmp_path / name)
    with pytest.warns(UserWarning, match="are one class, since they differ in letter case"):
        images = open_images(tmp_path, split="test")
    assert images.classes == sorted([train, "other"])
    assert [images.classes[label] for label in images.labels] == [
        train if name.startswith(test) else "other" for name in names_of(images)
    ]


def test_two_classes_of_one_split_that_read_alike_stay_two_and_are_named(tmp_path) -> None:
    for name in ("train/Cat/1.png", "train/cat/1.png", "test/cat/1.png", "test/Cat/1.png"):
        write(tmp_path / name)
    with pytest.warns(UserWarning, match="'Cat' and 'cat' are classes of their own, though people read them as one"):
        images = open_images(tmp_path, split="test")
    assert images.classes == ["Cat", "cat"] and images.labels.tolist() == [0, 1]


def test_classes_are_numbered_by_value_where_all_are_numbers(tmp_path) -> None:
    for name in ("0", "2", "10"):
        write(tmp_path / name / "1.png")
    assert open_images(tmp_path).classes == ["0", "2", "10"]


@pytest.mark.parametrize(
    ("folders", "shown"),
    [
        (["train2017", "val2017"], "train2017, val2017"),
        (["train_images", "test_images"], "test_images, train_images"),
        (["fold1", "fold2", "fold3"], "fold1, fold2, fold3"),
        (["cat", "dog", "test"], "test"),
        (["TrainSet", "TestSet"], "TestSet, TrainSet"),
    ],
)
def test_classes_that_look_like_splits_are_named(folders: list[str], shown: str, tmp_path) -> None:
    for name in folders:
        write(tmp_path / name / "1.png")
    with pytest.warns(
        UserWarning, match=rf"taken for classes, but some look like splits: {shown}\. All of their images"
    ):
        open_images(tmp_path)


@pytest.mark.parametrize(
    "folders", [["bus", "car", "train"], ["test tube", "beaker"], ["valid ticket", "invalid ticket"]]
)
def test_classes_that_are_things_are_not(folders: list[str], tmp_path) -> None:
    for name in folders:
        write(tmp_path / name / "1.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_images(tmp_path).classes == sorted(folders)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            ["images/train/1.png", "images/val/1.png"],
            r"train/ and val/ in images/ are read together.*give data=.*/images",
        ),
        (
            ["cat/train/1.png", "cat/test/1.png", "dog/train/2.png", "dog/test/2.png"],
            "in 1 other folders are read together",
        ),
        (["train/1.png", "cover.png"], "train/ is read as any folder, since other folders or images lie beside it"),
        (
            ["cat/1.png", "dog/1.png", "cover.png"],
            r"no labels, for there are images beside its 2 folders, such as cover\.png",
        ),
        (["train/a/1.png", "train/b/1.png", "test/a/1.png", "extra/1.png"], "left out beside them: extra/"),
        (["train/a/1.png", "train/b/1.png", "test/1.png"], None),
    ],
)
def test_images_that_are_read_otherwise_than_their_folders_say_are_named(files: list[str], said: str, tmp_path) -> None:
    for name in files:
        write(tmp_path / name)
    if said:
        with pytest.warns(UserWarning, match=said):
            open_images(tmp_path)
    else:
        with pytest.warns(UserWarning, match="its images of train have labels, those of test none"):
            assert open_images(tmp_path, split="test").labels is None


@pytest.mark.parametrize("named", ["folder", "pattern"])
def test_held_out_images_of_one_known_class_have_it(named: str, tmp_path: Path) -> None:
    """A single folder tells no classes, but here train tells them."""
    for name in ("train/Cat/1.png", "train/dog/1.png", "test/cat/1.png"):
        write(tmp_path / name)
    source = tmp_path if named == "folder" else f"{tmp_path}/**/*.png"
    with pytest.warns(UserWarning, match="'Cat' and 'cat' are one class"):
        test = open_images(source, split="test")
    assert [test.classes[label] for label in test.labels] == ["Cat"]
    (tmp_path / "test" / "cat").rename(tmp_path / "test" / "images")
    with pytest.warns(UserWarning, match="its images of train have labels, those of test none"):
        assert open_images(source, split="test").labels is None
