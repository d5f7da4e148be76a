"""open_split: every kind of source, its names of images, labels, metric, and what is refused."""

import dataclasses
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation.datasets import Split, open_split
from sslkit import open_images
from sslkit.data.arrays import ArrayImages
from sslkit.data.images import Identity, ImageOptions
from sslkit.errors import UserError


@pytest.mark.parametrize(
    ("source", "split", "n", "classes"),
    [
        ("digits", "test", 359, 10),
        ("glyphs", "novel_test", 10620, 531),
        ("clipart", "test", 473, 12),
        ("fashion_mnist", "train", 8000, 10),
    ],
)
def test_the_packages_own_sets(source: str, split: str, n: int, classes: int) -> None:
    opened, images = open_split(source, split), open_images(source, split=split)
    assert len(opened) == len(images) == n and len(opened.classes) == classes
    assert np.array_equal(opened.y, images.labels) and opened.metric == "top1"
    assert len(set(opened.ids)) == len(opened) and (opened.name, opened.split) == (source, split)
    assert opened.images.fit == "crop" and opened.images.options.on_error == "raise"


def in_python(pixels: np.ndarray, labels: np.ndarray | None, **options) -> ArrayImages:
    return ArrayImages(pixels, Identity("mine", labels=labels, classes=["a", "b"]), ImageOptions(**options))


def test_names_of_arrays_do_not_depend_on_the_order() -> None:
    digits = open_images("digits")
    order = np.random.default_rng(0).permutation(len(digits))
    here, there = (in_python(digits.pixels[rows], digits.labels[rows] % 2) for rows in (slice(None), order))
    here, there = open_split(here, "train"), open_split(there, "train")
    assert (here.ids[order] == there.ids).all() and here.digest != there.digest
    twice = open_split(in_python(digits.pixels[[3, 3, 4]], digits.labels[[3, 3, 4]] % 2), "train").ids
    assert twice[1] == f"{twice[0]}-2" and twice[2] != twice[0]


def test_images_built_in_python_are_read_as_asked() -> None:
    digits = open_images("digits")
    mine = in_python(digits.pixels[:9, :, :6], digits.labels[:9] % 2)
    opened = open_split(mine, "train", image_size=12, channels=3)
    assert opened.images[0]["images"].shape == (3, 12, 12) and opened.images[0]["aspect"] == 1
    with pytest.raises(UserError, match="built in Python as its split 'train', so it has no split 'test'"):
        open_split(mine)
    with pytest.raises(UserError, match="mine has no labels in its split 'train'"):
        open_split(in_python(digits.pixels[:9], None), "train")
    assert open_split(digits, "test").images.split == "test"


@pytest.fixture
def folder(tmp_path, picture) -> Path:
    for split, many in (("train", 3), ("test", 2)):
        for name in ("cat", "dog"):
            for number in range(many):
                picture(tmp_path / "animals" / split / name / f"{number}.jpg")
    return tmp_path / "animals"


def test_a_folder(folder) -> None:
    opened = open_split(folder, image_size=16)
    assert opened.ids.tolist() == ["cat/0.jpg", "cat/1.jpg", "dog/0.jpg", "dog/1.jpg"]
    assert opened.classes == ["cat", "dog"] and opened.y.tolist() == [0, 0, 1, 1] and opened.name == "animals"
    with pytest.raises(UserError, match=r"no labels in its split 'train', which evaluation needs: a folder gets them"):
        open_split(folder / "train" / "cat", "train")


def test_arrays_in_a_file(tmp_path) -> None:
    digits = open_images("digits", split="test")
    np.savez(tmp_path / "a.npz", x_train=digits.pixels[:, 0], x_test=digits.pixels[:, 0], y_test=digits.labels)
    assert (open_split(tmp_path / "a.npz").ids == open_split("digits").ids).all()
    with pytest.raises(UserError, match="no labels in its split 'train'"):
        open_split(str(tmp_path / "a.npz"), "train")


@pytest.fixture
def pets(tmp_path, picture, text) -> Path:
    root = tmp_path / "oxford-iiit-pet"
    lines = ["Abyssinian_1 1 1 1", "Abyssinian_2 1 1 1", "beagle_1 2 2 1", "beagle_2 2 2 1"]
    for line in lines:
        picture(root / "images" / f"{line.split()[0]}.jpg")
    text(root / "annotations" / "trainval.txt", *lines[::2])
    text(root / "annotations" / "test.txt", *lines[1::2])
    return tmp_path


def test_torchvisions_class_of_a_published_set_keeps_its_metric(pets, opened) -> None:
    split = open_split(f"torchvision:OxfordIIITPet:{pets}", image_size=16)
    assert split.metric == "mean_per_class" and split.ids.tolist() == opened("pets", pets).ids.tolist()


def test_torchvisions_other_classes_are_judged_by_top1(tmp_path, picture) -> None:
    for name in ("Forest", "River"):
        picture(tmp_path / "eurosat" / "2750" / name / f"{name}_1.png")
    split = open_split(f"torchvision:EuroSAT:{tmp_path}", "train", image_size=16)
    assert split.metric == "top1" and split.ids[1].endswith("2750/River/River_1.png")


def test_torchvision_images_that_are_no_files_are_named_by_their_pixels(tmp_path, picture) -> None:
    for number in (1, 2):
        picture(tmp_path / "caltech101" / "101_ObjectCategories" / "accordion" / f"image_000{number}.jpg")
    (tmp_path / "caltech101" / "101_ObjectCategories" / "BACKGROUND_Google").mkdir()
    (tmp_path / "caltech101" / "Annotations").mkdir()
    split = open_split(f"torchvision:Caltech101:{tmp_path}", "train", image_size=16)
    assert len({*split.ids}) == 2 and all(len(name) == 24 for name in split.ids) and split.metric == "mean_per_class"
    assert split.ids.tolist() == open_split(split.images, "train", image_size=32).ids.tolist()


def test_a_wrong_count_is_refused_unless_it_is_meant(pets) -> None:
    expected = r"pets: the split 'test' has 2 images instead of 3669 and 2 classes instead of 37.*counts=\"warn\""
    with pytest.raises(UserError, match=expected):
        open_split("pets", root=pets)
    with pytest.warns(UserWarning, match="numbers are not those of the published set"):
        split = open_split("pets", root=pets, counts="warn", image_size=16)
    assert open_split(split) is split
    with pytest.raises(UserError, match="pets is open as its split 'test', not 'train'"):
        open_split(split, "train")
    with pytest.raises(UserError, match="give the Split itself"):
        open_split(split.take(np.array([0])).images)
    with pytest.warns(UserWarning, match="numbers are not those of the published set"):
        assert open_split(split.images, counts="warn", image_size=16).digest == split.digest
    with pytest.raises(UserError, match="counts must be raise or warn, got 'ignore'"):
        open_split("pets", root=pets, counts="ignore")


def test_the_right_count_is_silent(pets, monkeypatch, recwarn) -> None:
    from sslkit.data.published import pets as module

    monkeypatch.setattr(module, "ENTRY", dataclasses.replace(module.ENTRY, counts={"test": 2}, classes=2))
    assert len(open_split("pets", root=pets, image_size=16)) == 2 and not recwarn.list
    monkeypatch.setattr(module, "ENTRY", dataclasses.replace(module.ENTRY, counts={"test": range(3, 5)}, classes=2))
    with pytest.raises(UserError, match="2 images instead of 3 to 4:"):
        open_split("pets", root=pets)


def test_a_published_name_wins_over_a_folder_of_that_name(pets, folder, monkeypatch) -> None:
    monkeypatch.chdir(folder.parent)
    shutil.copytree(folder, "pets")
    assert open_split("./pets", image_size=16).classes == ["cat", "dog"]
    with pytest.raises(UserError, match="Oxford-IIIT Pets cannot be opened from"):
        open_split("pets", root=folder)


def test_a_split_can_be_pickled_for_workers(pets, opened) -> None:
    split = opened("pets", pets)
    again: Split = pickle.loads(pickle.dumps(split))
    assert again.digest == split.digest and again.ids.tolist() == split.ids.tolist()
    batch = again.images.__getitems__([0, 1])
    assert torch.equal(batch["images"], split.images.__getitems__([0, 1])["images"])
    assert batch["label"].tolist() == split.y.tolist()


def test_the_digest_is_of_files_labels_and_options_and_not_of_the_place(pets, opened, text, tmp_path_factory) -> None:
    digest = opened("pets", pets).digest
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "data"
    shutil.copytree(pets, elsewhere, copy_function=shutil.copyfile)  # without the files' times
    assert opened("pets", elsewhere).digest == digest
    assert opened("pets", pets, image_size=20).digest != digest
    assert opened("pets", pets, fit="squash").digest != digest
    image = pets / "oxford-iiit-pet" / "images" / "beagle_2.jpg"
    content = bytearray(image.read_bytes())
    content[-20] ^= 1
    image.write_bytes(content)
    changed = opened("pets", pets).digest
    assert changed != digest
    text(pets / "oxford-iiit-pet" / "annotations" / "test.txt", "Abyssinian_2 1 1 1", "beagle_2 1 2 1")
    assert opened("pets", pets).digest not in (digest, changed)


def test_files_that_are_listed_but_gone_or_damaged(pets, opened) -> None:
    image = pets / "oxford-iiit-pet" / "images" / "beagle_2.jpg"
    image.write_bytes(b"broken")
    split = opened("pets", pets)
    with pytest.raises(UserError, match=r"cannot read .*beagle_2.jpg"):
        split.images.__getitems__([1])
    batch = opened("pets", pets, on_error="skip").images.__getitems__([0, 1])
    assert batch["index"].tolist() == [0, 0] and batch["bad"] == [str(image)]
    image.unlink()
    with pytest.raises(UserError, match=r"beagle_2.jpg has gone, or is a link to nothing: put it back"):
        _ = opened("pets", pets).digest


def test_files_are_read_as_rgb_unless_asked_otherwise(pets, opened) -> None:
    from PIL import Image

    for path in (pets / "oxford-iiit-pet" / "images").iterdir():
        Image.open(path).convert("L").save(path)
    assert opened("pets", pets).images.channels == 3 and opened("pets", pets, channels=1).images.channels == 1


def test_an_unknown_source_is_said_as_elsewhere() -> None:
    with pytest.raises(UserError, match="there is no data 'fashion_mnst': did you mean 'fashion_mnist'"):
        open_split("fashion_mnst")
