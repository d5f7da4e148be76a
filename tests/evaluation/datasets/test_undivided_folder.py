"""A folder of class folders without test images: a fifth of each class is held out by file name."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evaluation.datasets import note_of, open_split, overlap, splits_of
from evaluation.tuning.task import open_task
from sslkit import open_images
from sslkit.errors import UserError

MANY = {"cat": 10, "dog": 7, "owl": 1}


@pytest.fixture
def folder(tmp_path: Path, picture) -> Path:
    for name, count in MANY.items():
        for number in range(count):
            picture(tmp_path / "animals" / name / f"{number}.png")
    return tmp_path / "animals"


def smallest_hashes(name: str, count: int) -> list[str]:
    """The held-out images of a class, worked out here from the names alone."""
    names = [f"{name}/{number}.png" for number in range(MANY[name])]
    return sorted(sorted(names, key=lambda one: hashlib.sha256(f"held out 0 {one}".encode()).digest())[:count])


def test_a_fifth_of_each_class_by_name(folder: Path) -> None:
    test, train, whole = (open_split(folder, split, image_size=16) for split in ("test", "train", "all"))
    assert test.ids.tolist() == smallest_hashes("cat", 2) + smallest_hashes("dog", 1)
    assert sorted([*train.ids, *test.ids]) == sorted(whole.ids) and len(whole) == sum(MANY.values())
    assert [split.split for split in (test, train, whole)] == ["test", "train", "all"]
    assert test.classes == train.classes == ["cat", "dog", "owl"] and test.name == "animals"
    assert np.bincount(train.y).tolist() == [8, 6, 1] and np.bincount(test.y, minlength=3).tolist() == [2, 1, 0]
    assert test.note == train.note == note_of(folder) != "" and whole.note == ""
    assert overlap(train, test) == [] and len({test.digest, train.digest, whole.digest}) == 3


def test_the_images_are_those_of_the_names(folder: Path) -> None:
    test, whole = (open_split(folder, split, image_size=16, channels=3) for split in ("test", "all"))
    place = {name: row for row, name in enumerate(whole.ids)}
    for row, name in enumerate(test.ids):
        assert test.images.path(row) == str(folder / name)
        assert (test.images[row]["images"] == whole.images[place[name]]["images"]).all()
        assert test.images[row]["label"] == test.y[row]
    assert test.images.at(image_size=8, channels=1, fit="crop")[0]["images"].shape == (1, 8, 8)


def test_the_same_rows_in_another_place_and_beside_another_file(folder: Path, tmp_path: Path, picture) -> None:
    there = tmp_path / "elsewhere" / "copy"
    shutil.copytree(folder, there)
    assert open_split(there).ids.tolist() == open_split(str(folder)).ids.tolist()
    assert open_split(open_images(folder)).ids.tolist() == open_split(folder).ids.tolist()
    before = set(open_split(folder, "train").ids)
    picture(there / "cat" / "new.png")
    assert len(before - set(open_split(there, "train").ids)) <= 1


def test_an_unreadable_test_image_is_not_replaced_by_a_training_image(folder: Path) -> None:
    name = open_split(folder).ids[0]
    (folder / name).write_bytes(b"broken")
    test = open_split(folder, on_error="skip", image_size=16)
    batch = test.images.__getitems__(list(range(len(test))))
    assert batch["bad"] == [str(folder / name)] and set(batch["index"].tolist()) == {1, 2}


def test_a_name_that_is_no_text(folder: Path, picture) -> None:
    try:
        picture(folder / "cat" / "caf\udce9.png")
    except OSError:
        pytest.skip("this file system takes only names in UTF-8")
    assert len(open_split(folder)) == 3


def test_which_sources_are_divided_so(folder: Path, tmp_path: Path) -> None:
    assert splits_of(folder) == ("train", "test", "all")
    assert splits_of("digits") == open_images("digits").splits and note_of("digits") == ""
    divided = tmp_path / "divided"
    for split in ("train", "test"):
        shutil.copytree(folder, divided / split)
    assert splits_of(divided) == ("train", "test") and note_of(divided) == ""
    assert len(open_split(divided)) == sum(MANY.values())
    with pytest.raises(UserError, match="has no split 'novel'"):
        open_split(folder, "novel")


def test_what_is_refused(folder: Path, tmp_path: Path, picture) -> None:
    with pytest.raises(UserError, match=r"cat has no labels in its split 'train'.* at least two class folders"):
        open_split(folder / "cat")
    one = tmp_path / "one"
    shutil.copytree(folder / "cat", one / "cat")
    with pytest.raises(UserError, match="one has no labels"):
        open_split(one)
    picture(one / "dog" / "0.png")
    with pytest.raises(UserError, match=r"one has no test images, .* at least two classes need two images"):
        open_split(one)
    assert len(open_split(one, "train")) == 9  # two of ten are held out, the only dog is not


def test_fine_tuning_learns_from_the_rest(folder: Path) -> None:
    import sslkit

    task = open_task(sslkit.load("random:narrow_resnet", image_size=16), str(folder))
    assert set(task.test.ids) == set(open_split(folder).ids) and len(task.train) == 15


def test_pages_of_one_file_are_not_in_both_parts(tmp_path: Path) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (2, 6, 3, 3), dtype=np.uint8)
    for name, files in zip("ab", colours, strict=True):
        (tmp_path / name).mkdir()
        for number, pages in enumerate(files):
            first, *others = (Image.new("RGB", (16, 16), tuple(page.tolist())) for page in pages)
            first.save(tmp_path / name / f"{number}.tif", save_all=True, append_images=others)
    images = open_images(tmp_path, split="train", image_size=16, pages="all")
    train, test = (open_split(images, split) for split in ("train", "test"))
    files = [{one.partition("#")[0] for one in split.ids} for split in (train, test)]
    assert (len(train), len(test)) == (30, 6) and not files[0] & files[1]
    assert all(len(np.unique(split.groups)) == len(split) // 3 for split in (train, test))
    batches = (split.images.__getitems__(list(range(len(split))))["images"] for split in (train, test))
    pixels = np.concatenate([batch[:, :, 0, 0] for batch in batches])
    assert sorted(map(tuple, pixels.tolist())) == sorted(map(tuple, colours.reshape(-1, 3).tolist()))
