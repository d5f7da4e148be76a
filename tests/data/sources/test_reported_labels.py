"""Public reports about labels in other libraries, each written down as the data that it is about."""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import Dataset, Subset

from sslkit.data.images import Images
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError


def classes(images: Images) -> list[str | None]:
    """The class of each image by name."""
    return [images.classes[label] if label >= 0 else None for label in images.labels]


def pictures(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4)).save(folder / name, format="PNG")
    return folder


def of_table(folder: Path, text: str) -> tuple[Images, list[str]]:
    """The images of a table whose first column is the path, and what was said but for its columns."""
    pictures(folder, *(line.split(",")[0] for line in text.splitlines()[1:]))
    (folder / "list.csv").write_text(text)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        images = open_images(folder / "list.csv")
    return images, [str(one.message) for one in said[1:]]


def of_array(folder: Path, **arrays: Any) -> tuple[Images, list[str]]:
    count = len(next(iter(arrays.values())))
    np.savez(folder / "a.npz", x=np.zeros((count, 4, 4), np.uint8), **arrays)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        images = open_images(folder / "a.npz")
    return images, [str(one.message) for one in said]


@pytest.mark.parametrize("word", ["nan", "NaN", "None", "NULL", "N/A", "<NA>"])
def test_words_for_nothing_among_numbers_are_no_class(word: str, tmp_path: Path) -> None:
    """Tables that were written from texts: `nan` was a class, and all numbers became texts: 10 before 2."""
    images, said = of_table(tmp_path, f"path,label\n1.png,2\n2.png,{word}\n3.png,10\n")
    assert classes(images) == ["2", None, "10"] and images.classes == ["2", "10"] and not said


def test_words_for_nothing_among_names_are_said(tmp_path: Path) -> None:
    """A class may be called None; readers of tables took it for a missing value, or nan for a class."""
    images, said = of_table(tmp_path, "path,label\n1.png,cat\n2.png,None\n3.png,nan\n")
    assert classes(images) == ["cat", "None", "nan"]
    assert len(said) == 1 and "read as a class: 'None', 'nan'; leave the labels of images without" in said[0]
    images, said = of_array(tmp_path, y=np.array(["cat", "nan", "dog"]))
    assert classes(images) == ["cat", "nan", "dog"] and "read as a class: 'nan';" in said[0]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["cat|dog", "cat", "dog"], "'cat|dog'"),
        (["Edema;Mass", "Mass;Nodule", "Edema", "Nodule"], "'Edema;Mass', 'Mass;Nodule'"),
        (["[0. 3]", "[1]", "[0]"], ""),
        (['"[0, 3]"', "[1]", "[0]"], "'[0, 3]'"),
        (["crane|bird", "crane|machine"], ""),
    ],
)
def test_several_classes_in_one_text_are_said(labels: list[str], said: str, tmp_path: Path) -> None:
    """Findings of X-rays, lists of pandas: each combination was a class."""
    rows = "".join(f"{row}.png,{label}\n" for row, label in enumerate(labels))
    _, warned = of_table(tmp_path, f"path,labels\n{rows}")
    assert len(warned) == bool(said)
    assert not said or f"{said} looks like several classes and is read as one" in warned[0]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("path,label,,extra\n1.png,cat,0,\n2.png,dog,1,\n", ["cat", "dog"]),  # the index of a data frame
        ("path,label_id,class_name\n1.png,1,cat\n2.png,0,dog\n", ["cat", "dog"]),
        ("path,label,label\n1.png,cat,7\n2.png,dog,7\n", ["cat", "dog"]),
        ("path,labels\n1.png,cat\n2.png,cat \n3.png,dog\n", ["cat", "cat", "dog"]),
        ("path,labels\n1.png,9999999999999\n2.png,5\n", ["9999999999999", "5"]),  # identifiers of species
    ],
)
def test_columns_of_tables(text: str, want: list[str], tmp_path: Path) -> None:
    images, said = of_table(tmp_path, text)
    assert classes(images) == want and images.labels.max() < len(images.classes) and not said


@pytest.mark.parametrize("dtype", ["i8", "u1", "f4", "?"])
def test_one_hot_labels_are_one_class_an_image(dtype: str, tmp_path: Path) -> None:
    """`to_categorical`: a loss or a metric of several labels was taken without a word."""
    hot = np.eye(3, dtype=dtype)[[2, 0, 1, 1]]
    images, said = of_array(tmp_path, y=hot, classes=np.array(["a", "b", "c"]))
    assert classes(images) == ["c", "a", "b", "b"] and images.multi_labels is None
    assert len(said) == 1 and "one 1 in each row, and are read as one class an image" in said[0]
    hot[0] = True
    images, said = of_array(tmp_path, y=hot)
    assert images.labels is None and images.multi_labels.tolist()[0] == [1, 1, 1] and not said


def test_arrays_that_are_not_used_are_named(tmp_path: Path) -> None:
    """A file with `label` beside `x`: it trained without labels, and said nothing."""
    images, said = of_array(tmp_path, label=np.arange(3), weights=np.ones(3))
    assert images.labels is None and len(said) == 1
    assert re.search(r"a\.npz: not used of its arrays: label, weights$", said[0])


@pytest.mark.parametrize(
    ("y", "want"),
    [
        (np.array([[6], [9], [6]]), ["6", "9", "6"]),  # as Keras gives CIFAR
        (np.array([10**15, 2, -100]), [str(10**15), "2", None]),
        (np.array([1, 2, 3], ">i2"), ["1", "2", "3"]),  # MATLAB counts from 1
        (np.array([200, 255, 0], "u1"), ["200", "255", "0"]),
    ],
)
def test_numbers_in_arrays(y: np.ndarray, want: list[str | None], tmp_path: Path) -> None:
    images, said = of_array(tmp_path, y=y)
    assert classes(images) == want and images.labels.max() < len(images.classes)
    assert [text.partition(": ")[2] for text in said] == ["1 of 3 labels are negative, which means none"] * (
        None in want
    )


class Items(Dataset):
    """Six images whose labels are 0, 1, 2, 0, 1, 2 in its items, as its transform changes them."""

    def __init__(self, targets: Any, target_transform: Any = None) -> None:
        self.targets, self.target_transform = targets, target_transform

    def __len__(self) -> int:
        return 6

    def __getitem__(self, row: int) -> tuple[np.ndarray, int]:
        label = row % 3
        return np.full((4, 4), row, np.uint8), label if self.target_transform is None else self.target_transform(label)


def test_the_transform_of_labels_is_applied_to_their_list() -> None:
    """`targets` of torchvision's classes are those before `target_transform`: classes that were joined stayed apart."""
    data = Items([0, 1, 2, 0, 1, 2], lambda label: label // 2)
    assert open_images(data).labels.tolist() == [0, 0, 1, 0, 0, 1]
    assert open_images(Subset(data, [5, 0])).labels.tolist() == [1, 0]


def test_a_list_of_labels_that_the_items_contradict_is_not_used() -> None:
    """A list that was not sorted or filtered with the images."""
    with pytest.warns(UserWarning, match="the label of its item 0 is not the one in its list of labels"):
        images = open_images(Items([2, 1, 0, 2, 1, 0]))
    assert images.labels.tolist() == [0, 1, 2, 0, 1, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_images(Items(["cat", "dog", "emu"] * 2)).classes == ["cat", "dog", "emu"], "names of the numbers"
        assert open_images(Items([0, 1])).labels.tolist() == [0, 1, 2, 0, 1, 2], "a list of another length"


def test_numbered_folders_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """ImageFolder sorts 10 before 2: labels of a classifier that was trained on numbers were wrong."""
    images = open_images(pictures(tmp_path, *(f"{number}/1.png" for number in (0, 1, 2, 10, 11))))
    assert images.classes == ["0", "1", "2", "10", "11"] and classes(images) == ["0", "1", "10", "11", "2"]


def test_classes_below_one_folder_are_said(tmp_path: Path) -> None:
    """An archive that was unpacked into a folder of its own: it trained without labels, or with one class."""
    with pytest.warns(UserWarning, match=r"no labels, .* lie in x/; its 2 folders are classes with data=.*x$"):
        assert open_images(pictures(tmp_path, "x/cat/1.png", "x/dog/1.png")).labels is None
    assert open_images(tmp_path / "x").classes == ["cat", "dog"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_images(pictures(tmp_path / "y", "x/cat/1.png", "x/1.png")).labels is None


def test_images_and_masks_are_said_to_be_taken_for_classes(tmp_path: Path) -> None:
    """Data sets of segmentation: the masks were learned from as images."""
    with pytest.warns(UserWarning, match="images/ and masks/ are taken for classes, and all their files learned from"):
        open_images(pictures(tmp_path, "images/1.png", "masks/1.png"))


def test_a_column_called_like_one_of_labels_is_the_label(tmp_path: Path) -> None:
    images, _ = of_table(tmp_path, "path,fine_label\na.png,ant\nb.png,bee\n")
    assert classes(images) == ["ant", "bee"]


def test_of_several_columns_like_labels_one_must_be_named(tmp_path: Path) -> None:
    """CIFAR-100 and iNaturalist have two; another word is named in the same way."""
    text = "path,coarse_label,fine_label,breed\na.png,1,ant,x\nb.png,1,bee,y\n"
    with pytest.raises(
        UserError, match=r"coarse_label, fine_label may be the label: name it, columns.label=coarse_label"
    ):
        of_table(tmp_path, text)
    assert classes(open_images(f"{tmp_path}/list.csv", columns={"label": "fine_label"})) == ["ant", "bee"]
    assert classes(open_images(f"{tmp_path}/list.csv:{tmp_path}", columns={"label": "breed"})) == ["x", "y"]
    with pytest.raises(UserError, match=r"columns.label=breeds: .*list.csv has no such column: did you mean 'breed'"):
        open_images(f"{tmp_path}/list.csv", columns={"label": "breeds"})
    with pytest.raises(UserError, match=r"a column of labels is named by columns.label=breed, with data="):
        open_images(f"{tmp_path}/list.csv#breed")


def test_is_train_divides_a_table(tmp_path: Path) -> None:
    """CUB-200 has 1 and 0, other sets True and False."""
    for yes, no in (("1", "0"), ("True", "False")):
        images, _ = of_table(tmp_path, f"path,label,is_train\na.png,ant,{yes}\nb.png,bee,{yes}\nc.png,ant,{no}\n")
        assert images.splits == ("train", "test") and len(images) == 2


def test_a_label_that_says_it_is_none_is_said(tmp_path: Path) -> None:
    _, said = of_table(tmp_path, "path,label\na.png,ant\nb.png,unlabeled\n")
    assert any("'unlabeled'" in one for one in said)


def test_the_keys_of_medmnist(tmp_path: Path) -> None:
    x = np.zeros((2, 4, 4), np.uint8)
    parts = {
        f"{split}_{what}": x if what == "images" else [[0], [1]]
        for split in ("train", "val", "test")
        for what in ("images", "labels")
    }
    np.savez(tmp_path / "pathmnist.npz", **parts)
    images = open_images(tmp_path / "pathmnist.npz", split="test")
    assert images.splits == ("train", "val", "test") and images.labels.tolist() == [0, 1]
