"""Public reports about folders, names and labels in other libraries, each written down as the data that it is about."""

import os
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, random_split

from sslkit.data.images import Images
from sslkit.data.sources.named import open_images, splits


def write(folder: Path, *names: str) -> Path:
    """Pictures, each of its own gray."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), number + 1).save(path, format=None if path.suffix.lower() in (".png", ".jpg") else "PNG")
    return folder


def names(images: Images) -> list[str]:
    return [images.image_name(row) for row in range(len(images))]


def classes(images: Images) -> list[str]:
    return [images.classes[label] for label in images.labels]


@pytest.mark.parametrize("empty", [True, False])
def test_a_test_part_without_one_class_keeps_the_numbers(empty: bool, tmp_path: Path) -> None:
    """timm 957 and 211, ultralytics 13936: without a picture of 180 degrees, those of 90 were judged as 180."""
    write(tmp_path, *(f"train/{turn}/1.png" for turn in (0, 90, 180, 270)))
    write(tmp_path, *(f"test/{turn}/1.png" for turn in (0, 90, 270)))
    if empty:
        (tmp_path / "test" / "180").mkdir()
    train, test = (open_images(tmp_path, split=split) for split in ("train", "test"))
    assert train.classes == test.classes == ["0", "90", "180", "270"]
    assert classes(test) == ["0", "270", "90"] and test.labels.tolist() == [0, 3, 1]


def test_test_images_beside_class_folders_are_named_as_a_class(tmp_path: Path) -> None:
    """fastai 1552 and 2336: the folder of test images became a class, and was trained on."""
    write(tmp_path, "ok/1.png", "nok/1.png", "unsure/1.png", "test/1.png")
    with pytest.warns(UserWarning, match="some look like splits: test. All of their images are learned from"):
        open_images(tmp_path)


def test_a_test_folder_without_classes_is_held_out_and_has_no_labels(tmp_path: Path) -> None:
    """fastai 2336: train/LABEL/IMAGE and test/IMAGE, with labels.csv beside them."""
    write(tmp_path, "train/label_0/1.png", "train/label_1/1.png", "test/1.png")
    (tmp_path / "labels.csv").write_text("name,label\n")
    with pytest.warns(UserWarning, match=r"left out beside them: labels\.csv"):
        assert open_images(tmp_path).classes == ["label_0", "label_1"]
    with pytest.warns(UserWarning, match="its images of train have labels, those of test none"):
        assert open_images(tmp_path, split="test").labels is None


def test_samples_with_splits_of_their_own_are_left_out(tmp_path: Path) -> None:
    """fastai2 210: dogscats/samples/train went into the training images of dogscats/train."""
    write(
        tmp_path, *(f"{part}/{kind}/1.png" for part in ("train", "valid", "samples/train") for kind in ("cat", "dog"))
    )
    with pytest.warns(UserWarning, match="train/ and valid/ are its splits; left out beside them: samples/"):
        assert names(open_images(tmp_path)) == ["cat/1.png", "dog/1.png"]


def test_folders_of_splits_without_classes_give_no_labels(tmp_path: Path) -> None:
    """huggingface/datasets 7880: train/ and test/ became the classes of their images."""
    write(tmp_path, "train/1.png", "train/2.png", "test/1.png")
    assert splits(tmp_path) == ("train", "test")
    assert all(open_images(tmp_path, split=split).labels is None for split in ("train", "test"))


def test_words_in_the_names_of_files_divide_nothing(tmp_path: Path) -> None:
    """huggingface/datasets 5021: only "photo of a train" and "photo of test tubes" of four files were loaded."""
    files = [f"photo of {what}.jpg" for what in ("a cat", "a dog", "a train", "test tubes")]
    write(tmp_path, *files)
    assert splits(tmp_path) == ("train",) and names(open_images(tmp_path)) == files
    table = tmp_path / "metadata.csv"
    table.write_text("file_name,text\n" + "".join(f"{name},a photo\n" for name in files))
    assert splits(table) == ("train",) and names(open_images(table)) == files


@pytest.mark.parametrize("more", [[], ["4.png", "5.png"]])
def test_one_folder_is_no_class(more: list[str], tmp_path: Path) -> None:
    """huggingface/datasets 5153: all images had label 0, or those beside the folder label 1."""
    write(tmp_path, "data/1.png", "data/2.png", *more)
    assert open_images(tmp_path).labels is None


def test_what_desktops_and_notebooks_leave_behind_is_no_class(tmp_path: Path) -> None:
    """pytorch/vision 109, BiaPy 125, mmpretrain 507: .DS_Store and .ipynb_checkpoints were classes, and shifted all."""
    write(tmp_path, "a/1.png", "b/1.png", ".ipynb_checkpoints/1.png", "a/.ipynb_checkpoints/1-checkpoint.png")
    for place in ("", "a", "b"):
        (tmp_path / place / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_images(tmp_path).labels.tolist() == [0, 1]


@pytest.mark.parametrize("ending", ["JPG", "JPEG", "jpeg", "bmp", "webp", "tif", "avif", "Png"])
def test_endings_of_any_kind_and_case(ending: str, tmp_path: Path) -> None:
    """ultralytics 25749, anomalib 3058, lightly-train 140: .jpeg, .JPG or .JPEG were no images, in folders or lists."""
    for kind in ("a", "b"):
        (tmp_path / kind).mkdir()
        Image.new("RGB", (16, 16), (9, 9, 9)).save(tmp_path / kind / f"IMG_6003.{ending}")
    (tmp_path / "some.txt").write_text(f"b/IMG_6003.{ending}\na/IMG_6003.{ending}\n")
    assert open_images(tmp_path / "some.txt").labels.tolist() == [1, 0]
    (tmp_path / "some.txt").unlink()
    assert len(open_images(tmp_path)) == 2


def test_a_list_need_not_name_an_image_of_every_folder(tmp_path: Path) -> None:
    """lightly 535 and pytorch/vision 4925: a folder without a named image was an error."""
    write(tmp_path, "one/0.png", "one/1.png", "two/0.png", "three/0.png")
    (tmp_path / "empty").mkdir()
    (tmp_path / "some.txt").write_text("one/0.png\nthree/0.png\n")
    images = open_images(tmp_path / "some.txt")
    assert images.classes == ["one", "three"] and images.labels.tolist() == [0, 1]


def test_files_of_one_name_in_several_folders_are_several_images(tmp_path: Path) -> None:
    """clip-retrieval 321, deepocli 91: of files with one name, or that differ in the extension alone, one was lost."""
    write(tmp_path, "a/1.png", "b/1.png", "b/1.jpg", "b/c/1.png")
    assert names(open_images(tmp_path)) == ["a/1.png", "b/1.jpg", "b/1.png", "b/c/1.png"]
    assert len(set(names(open_images([tmp_path / "a", tmp_path / "b"])))) == 4


def test_a_table_whose_names_lack_their_ending_says_so(tmp_path: Path) -> None:
    """timm 1081: `ImageId,Class`, and the files without their ending, as in many tables of competitions."""
    write(tmp_path, "ILSVRC2012_val_00000001.png")
    (tmp_path / "val.csv").write_text("ImageId,Class\nILSVRC2012_val_00000001,n01751748\n")
    with pytest.warns(UserWarning, match=r"1 of 1 path is not there as written: .* is read as .*_00000001\.png"):
        assert len(open_images(tmp_path / "val.csv")) == 1


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents_of_another_system_in_a_list(form: str, tmp_path: Path) -> None:
    """gocryptfs 850, renpy 2327: macOS writes an accent as a letter of its own, and names are not found elsewhere."""
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    write(tmp_path, unicodedata.normalize(other, "jalapeño/é1.png"), "other/1.png")
    listed = unicodedata.normalize(form, "jalapeño/é1.png")
    (tmp_path / "some.csv").write_text(f"path,label\n{listed},x\nother\\1.png,y\n", encoding="utf-8")
    images = open_images(tmp_path / "some.csv", image_size=4)
    assert images.__getitems__([0, 1])["images"][:, 0, 0, 0].tolist() == [1, 2]


def test_linked_folders_and_files_are_read(tmp_path: Path) -> None:
    """timm 334, fastai 2270, huggingface/datasets 6853: a validation folder shared by a link was empty."""
    write(tmp_path / "shared", "cat/1.png", "dog/1.png")
    write(tmp_path / "set", "train/cat/1.png", "train/dog/1.png")
    os.symlink(tmp_path / "shared", tmp_path / "set" / "valid")
    os.symlink(tmp_path / "shared" / "cat" / "1.png", tmp_path / "set" / "train" / "cat" / "2.png")
    assert splits(tmp_path / "set") == ("train", "test") and len(open_images(tmp_path / "set")) == 3
    assert names(open_images(tmp_path / "set", split="test")) == ["cat/1.png", "dog/1.png"]


def test_patterns_of_train_and_val_are_splits(tmp_path: Path) -> None:
    """huggingface/datasets 4015: the classes of imagenet/train/** and imagenet/val/** were parsed wrong."""
    write(tmp_path, *(f"{part}/n0{kind}/1.png" for part in ("train", "val") for kind in (1, 2)))
    text = f"{tmp_path}/train/**,{tmp_path}/val/**"
    assert splits(text) == ("train", "test")
    for split in ("train", "test"):
        assert classes(open_images(text, split=split)) == ["n01", "n02"]


def test_a_random_part_of_a_dataset_has_the_targets_of_its_rows() -> None:
    """pytorch 97944: the targets behind a Subset are those of all rows. tutorials 540: its rows may be tensors."""

    class Own(Dataset):
        targets = torch.arange(20) % 4
        classes = ("a", "b", "c", "d")

        def __len__(self) -> int:
            return 20

        def __getitem__(self, row: int) -> tuple[np.ndarray, int]:
            return np.full((4, 4), int(row), np.uint8), int(self.targets[row])

    part, _ = random_split(Own(), [12, 8], torch.Generator().manual_seed(1))
    images = open_images(part, image_size=4)
    rows = images.__getitems__(list(range(12)))["images"][:, 0, 0, 0]
    assert classes(images) == ["abcd"[row % 4] for row in rows.tolist()]


def test_labels_of_a_table_belong_to_their_rows_whatever_their_order(tmp_path: Path) -> None:
    """keras-preprocessing 240: labels were numbered by another order of classes, and rows dropped without a word."""
    write(tmp_path, "dog.png", "cat.png", "horse.png")
    (tmp_path / "some.csv").write_text("filename,class\ndog.png,dog\ncat.png,cat\nhorse.png,horse\n")
    images = open_images(tmp_path / "some.csv", image_size=4)
    assert classes(images) == ["dog", "cat", "horse"]
    assert images.__getitems__([0, 1, 2])["images"][:, 0, 0, 0].tolist() == [1, 2, 3]


def test_whole_numbers_that_became_floats_beside_a_missing_one(tmp_path: Path) -> None:
    """CheXpert-Keras 1, keras-preprocessing 57: pandas writes 0.0, 1.0 and nothing where a label is missing."""
    write(tmp_path, "1.png", "2.png", "3.png", "4.png")
    (tmp_path / "some.csv").write_text("path,label\n1.png,0.0\n2.png,1.0\n3.png,\n4.png,-1.0\n")
    assert open_images(tmp_path / "some.csv").labels.tolist() == [0, 1, -1, -1]
