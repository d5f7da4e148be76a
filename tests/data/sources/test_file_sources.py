"""Several folders, lists and patterns as one set of images."""

import os
import warnings
from pathlib import Path

import pytest
from PIL import Image

from sslkit.data.sources.folder import FolderImages
from sslkit.data.sources.named import is_divisible, name_of_tables, open_images, splits
from sslkit.errors import UserError


def write(path: Path, value: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), value).save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """first/ and second/, each with the classes ant and bee; the values are 0, 1 and 10, 11."""
    for start, name in ((0, "first"), (10, "second")):
        for number, kind in enumerate(("ant", "bee")):
            write(tmp_path / name / kind / "1.png", start + number)
    return tmp_path


def values(images: FolderImages) -> list[int]:
    return images.__getitems__(list(range(len(images))))["images"][:, 0, 0, 0].tolist()


def names(images: FolderImages) -> list[str]:
    return [images.image_name(row) for row in range(len(images))]


def test_several_folders_are_one_set(folder: Path) -> None:
    text = f"{folder / 'first'},{folder / 'second'}"
    images = open_images(text, image_size=4)
    assert values(images) == [0, 1, 10, 11] and images.name == "first+second" == name_of_tables(text)
    assert images.classes == ["ant", "bee"] and images.labels.tolist() == [0, 1, 0, 1]
    assert names(images) == ["first/ant/1.png", "first/bee/1.png", "second/ant/1.png", "second/bee/1.png"]
    assert splits(text) == ("train",) and is_divisible(text) and images.prefix == ""
    listed = open_images([folder / "first", str(folder / "second")])
    assert listed.source == text and listed.digest == open_images(text).digest


def test_they_keep_their_identity_where_they_are_copied_together(folder: Path, tmp_path_factory) -> None:
    before = open_images([folder / "first", folder / "second"]).digest
    copy = tmp_path_factory.mktemp("scratch") / "copy"
    folder.rename(copy)
    assert open_images([copy / "first", copy / "second"]).digest == before
    assert open_images([copy / "second", copy / "first"]).digest != before
    write(copy / "second" / "bee" / "1.png", 99)
    assert open_images([copy / "first", copy / "second"]).digest != before


def test_their_splits_are_put_together(folder: Path) -> None:
    for kind in ("ant", "bee"):
        write(folder / "third" / "train" / kind / "1.png", 20)
        write(folder / "third" / "val" / kind / "1.png", 30)
    text = f"{folder / 'first'},{folder / 'third'}"
    assert splits(text) == ("train", "test")
    assert values(open_images(text, image_size=4)) == [0, 1, 20, 20]
    test = open_images(text, image_size=4, split="val")
    assert values(test) == [30, 30] and names(test)[0] == "third/val/ant/1.png" and test.labels.tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["folders", "lists"])
def test_they_are_splits_themselves_if_they_are_called_so(kind: str, folder: Path) -> None:
    """Shards are divided so, too: held-out images are not learned from, however they are named."""
    if kind == "folders":
        (folder / "first").rename(folder / "train")
        (folder / "second").rename(folder / "val")
        text = f"{folder / 'train'},{folder / 'val'}"
    else:
        (folder / "train.txt").write_text("first/ant/1.png\nfirst/bee/1.png\n")
        (folder / "val.txt").write_text("second/ant/1.png\nsecond/bee/1.png\n")
        text = f"{folder / 'train.txt'}, {folder / 'val.txt'}"
    assert splits(text) == ("train", "test") and values(open_images(text, image_size=4)) == [0, 1]
    test = open_images(text, image_size=4, split="test")
    assert values(test) == [10, 11] and test.labels.tolist() == [0, 1]


def test_classes_of_all_are_compared_as_names(folder: Path) -> None:
    (folder / "second" / "ant").rename(folder / "second" / "ANT")
    with pytest.warns(UserWarning, match=r"first\+second: 'ant' and 'ANT' are one class"):
        images = open_images([folder / "first", folder / "second"])
    assert images.classes == ["ant", "bee"] and images.labels.tolist() == [0, 1, 0, 1]


def test_images_without_classes_beside_those_with_some_have_no_label(folder: Path) -> None:
    write(folder / "more" / "1.png")
    with pytest.warns(UserWarning, match=r"more: no classes there, and so no labels \(1 image\)"):
        images = open_images([folder / "first", folder / "more"])
    assert images.labels.tolist() == [0, 1, -1]


def test_folders_lists_and_patterns_mix(folder: Path) -> None:
    (folder / "some.csv").write_text("path,label\nsecond/bee/1.png,bee\n")
    write(folder / "third" / "9.png", 9)
    text = f"{folder / 'first'},{folder / 'some.csv'},{folder / 'third' / '*.png'}"
    images = open_images(text, image_size=4)
    assert values(images) == [0, 1, 11, 9] and images.labels.tolist() == [0, 1, 1, -1]
    assert images.name == "first+some+third"


def test_a_pattern_names_files(folder: Path) -> None:
    text = f"{folder}/first/**/*.png"
    images = open_images(text, image_size=4)
    assert values(images) == [0, 1] and images.labels.tolist() == [0, 1] and images.name == "first"
    assert names(images) == ["ant/1.png", "bee/1.png"] and name_of_tables(text) == "first" and is_divisible(text)
    assert values(open_images(f"{folder}/*/bee/?.png", image_size=4)) == [1, 11]


def test_a_pattern_keeps_the_splits_of_its_folders(folder: Path) -> None:
    (folder / "first").rename(folder / "train")
    (folder / "second").rename(folder / "test")
    text = f"{folder}/**/*.png"
    assert splits(text) == ("train", "test") and values(open_images(text, image_size=4)) == [0, 1]
    assert values(open_images(text, image_size=4, split="test")) == [10, 11]


def test_what_a_pattern_leaves_out_is_counted(folder: Path) -> None:
    write(folder / "first" / "2.png", 2)
    (folder / "first" / "notes.txt").write_text("no image")
    with pytest.warns(UserWarning, match="left out 3 other files: 2 folders that were not looked into, 1 .txt"):
        assert values(open_images(f"{folder}/first/*", image_size=4)) == [2]


def test_a_folder_whose_name_has_a_sign_is_that_folder(folder: Path) -> None:
    (folder / "first").rename(folder / "a[1],b*")
    assert values(open_images(folder / "a[1],b*", image_size=4)) == [0, 1]
    assert values(open_images(str(folder / "a[1],b*"), image_size=4)) == [0, 1]


def test_home_is_expanded(folder: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert len(open_images("~/first,~/second")) == 4 and len(open_images("~/first/**/*.png")) == 2


def test_relative_folders(folder: Path, monkeypatch) -> None:
    before = open_images([folder / "first", folder / "second"]).digest
    monkeypatch.chdir(folder)
    assert open_images("first,second").digest == before
    os.chdir("first")
    assert open_images("../second,.").name == "second+first"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{0}/first,{0}/none", "names '.*/none', and there is no such folder or list of files"),
        ("{0}/first,{0}/first", "twice: give each folder once, and none that lies in another"),
        ("{0},{0}/first", "twice: give each folder once"),
        ("{0}/*.gif", r"the pattern .*/\*\.gif matches no file"),
        ("{0}/*", r"matches 2 folders and no file: for the files below write .*/\*/\*\*/\*"),
        ("{0}/list.txt:{0}/none", "there is no folder '.*none', which the paths in .*list.txt are relative to"),
        ("{0}/list.txt:", "there is no folder ''"),
        ("{0}/photo.jpg", "is a file: give the folder .*a list of files"),
        ("{0}/photos.7z", "is a file: unpack it"),
        ("{0}/photos.zip", "is a file: for the images in it write data=shards:.*photos.zip"),
        ("{0}/photos.tar", "is a file: for the images in it write data=shards:.*photos.tar"),
        ([], r"data=\[\] is an empty list"),
        ([3], "data is a list of int, not of paths"),
        (["a,b", "c"], "'a,b' has a comma, and cannot be one of several"),
        (3.5, "data is a name, a path, a list of paths, an array or tensor of images, or a Dataset; got float"),
    ],
)
def test_what_cannot_be_named(source: object, message: str, folder: Path) -> None:
    if source != "{0}/*":
        (folder / "list.txt").write_text("first/ant/1.png\n")
        for name in ("photo.jpg", "photos.7z", "photos.zip", "photos.tar"):
            (folder / name).write_bytes(b"x")
    with pytest.raises(UserError, match=message):
        open_images(source.format(folder) if isinstance(source, str) else source)


def test_several_folders_say_nothing(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_images([folder / "first", folder / "second"])
