"""Each published set that torchvision parses, from a few pictures laid out as its authors pack them."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch

from evaluation.datasets import open_split
from sslkit.errors import UserError


def test_aircraft(tmp_path, picture, text, opened, named) -> None:
    data = tmp_path / "fgvc-aircraft-2013b" / "data"
    text(data / "variants.txt", "707-320", "Boeing 717", "A300B4")
    parts = {"train": ["0001 Boeing 717"], "val": ["0002 A300B4"], "test": ["0003 707-320", "0004 A300B4"]}
    for split, lines in {**parts, "trainval": parts["train"] + parts["val"]}.items():
        text(data / f"images_variant_{split}.txt", *lines)
    for number in range(1, 5):
        picture(data / "images" / f"000{number}.jpg")
    start = "fgvc-aircraft-2013b/data/images"
    test = opened("aircraft", tmp_path)
    assert named(test) == {f"{start}/0003.jpg": "707-320", f"{start}/0004.jpg": "A300B4"}
    assert test.metric == "mean_per_class" and test.classes == ["707-320", "Boeing 717", "A300B4"]
    trainval = opened("aircraft", tmp_path, "trainval")
    assert named(trainval) == {f"{start}/0001.jpg": "Boeing 717", f"{start}/0002.jpg": "A300B4"}
    assert test.images.channels == 3 and test.images[0]["images"].shape == (3, 16, 16)


def test_cars(tmp_path, picture, opened, named) -> None:
    root = tmp_path / "stanford_cars"
    (root / "devkit").mkdir(parents=True)
    meta = np.array(["Acura RL", "Audi A5", "BMW X3"], dtype=object)
    scipy.io.savemat(root / "devkit" / "cars_meta.mat", {"class_names": meta})
    for split, path in (("train", "devkit/cars_train_annos"), ("test", "cars_test_annos_withlabels")):
        rows = [(f"0000{k}.jpg", label) for k, label in enumerate((3, 1))]
        annotations = np.array(rows, dtype=[("fname", object), ("class", object)])
        scipy.io.savemat(root / f"{path}.mat", {"annotations": annotations})
        for name, _ in rows:
            picture(root / f"cars_{split}" / name)
    test = opened("cars", tmp_path)
    start = "stanford_cars/cars_test"
    assert named(test) == {f"{start}/00000.jpg": "BMW X3", f"{start}/00001.jpg": "Acura RL"} and test.metric == "top1"
    assert opened("cars", tmp_path, "train").ids[0] == "stanford_cars/cars_train/00000.jpg"
    (root / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(UserError, match=r"cars_test_annos_withlabels.mat is missing.*issues 7545"):
        open_split(f"cars:{tmp_path}", "test")


COARSE = ["aquatic_mammals", "fish", "flowers", "food_containers", "fruit_and_vegetables"]
COARSE += ["household_electrical_devices", "household_furniture", "insects", "large_carnivores"]
COARSE += ["large_man-made_outdoor_things", "large_natural_outdoor_scenes", "large_omnivores_and_herbivores"]
COARSE += ["medium_mammals", "non-insect_invertebrates", "people", "reptiles", "small_mammals", "trees"]
COARSE += ["vehicles_1", "vehicles_2"]


@pytest.fixture
def cifar100(tmp_path, monkeypatch) -> Path:
    """40 images: fine label = coarse label, of two superclasses of each part of FC100 and one more to train."""
    from torchvision.datasets import CIFAR100

    monkeypatch.setattr(CIFAR100, "_check_integrity", lambda self: True)
    monkeypatch.setitem(CIFAR100.meta, "md5", None)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    meta = {"fine_label_names": [f"fine {k:02d}" for k in range(100)], "coarse_label_names": COARSE}
    (folder / "meta").write_bytes(pickle.dumps(meta))
    pixels = np.random.default_rng(0).integers(0, 256, (40, 3072), dtype=np.uint8)
    labels = list(range(20)) * 2
    for part, rows in (("train", slice(0, 30)), ("test", slice(30, 40))):
        batch = {"data": pixels[rows], "fine_labels": labels[rows], "coarse_labels": labels[rows]}
        (folder / part).write_bytes(pickle.dumps(batch))
    return tmp_path


def test_cifar100_and_its_missing_part(cifar100, opened) -> None:
    train, test = (opened("cifar100", cifar100, split) for split in ("train", "test"))
    assert len(train) == 30 and len(test) == 10 and test.y.tolist() == list(range(10, 20)) and len(test.classes) == 100
    assert not train.images.decodes and len(set(train.ids)) == 30 and "32 x 32" in train.note
    (cifar100 / "cifar-100-python" / "test").unlink()
    with pytest.raises(UserError, match=r"cifar-100-python/test is missing.*CIFAR100\('.*', download=True\)"):
        open_split(f"cifar100:{cifar100}", "train")


def test_cifar10(tmp_path, monkeypatch, opened) -> None:
    from torchvision.datasets import CIFAR10

    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (12, 3072), dtype=np.uint8)
    for i, file in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        batch = {"data": pixels[2 * i : 2 * i + 2], "labels": [i, 9]}
        (folder / file).write_bytes(pickle.dumps(batch))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {k}" for k in range(10)]}))
    with pytest.raises(UserError, match="not found or corrupted"):  # another md5 than the published files'
        open_split(f"cifar10:{tmp_path}", "test", counts="warn")
    monkeypatch.setattr(CIFAR10, "_check_integrity", lambda self: True)
    monkeypatch.setitem(CIFAR10.meta, "md5", None)
    train, test = (opened("cifar10", tmp_path, split, image_size=None) for split in ("train", "test"))
    assert test.y.tolist() == [5, 9] and test.classes[5] == "class 5" and test.metric == "top1"
    assert torch.equal(train.images[3]["images"].flatten(), torch.from_numpy(pixels[3]))


def test_fc100_parts_the_superclasses_as_tadam_does(cifar100, opened) -> None:
    splits = {split: opened("fc100", cifar100, split) for split in ("train", "val", "test")}
    numbers = {split: sorted(int(name[5:]) for name in part.classes) for split, part in splits.items()}
    assert numbers["val"] == [8, 11, 13, 16] and numbers["test"] == [0, 7, 12, 14]
    assert sorted(number for some in numbers.values() for number in some) == list(range(20))
    test = splits["test"]
    assert np.bincount(test.y).tolist() == [2, 2, 2, 2]  # one from each part of CIFAR-100
    pooled = np.concatenate([opened("cifar100", cifar100, part).images.pixels for part in ("train", "test")])
    for row, label in enumerate(test.y):
        place = int(np.flatnonzero((pooled == test.images.pixels[row]).all((1, 2, 3)))[0])
        assert test.classes[label] == f"fine {place % 20:02d}"


def test_flowers102(tmp_path, picture, monkeypatch, opened) -> None:
    from torchvision.datasets import Flowers102

    root = tmp_path / "flowers-102"
    for number in range(1, 7):
        picture(root / "jpg" / f"image_{number:05d}.jpg")
    scipy.io.savemat(root / "imagelabels.mat", {"labels": np.array([102, 1, 2, 2, 1, 102])})
    scipy.io.savemat(root / "setid.mat", {"trnid": [1, 2], "valid": [3, 4], "tstid": [5, 6]})
    with pytest.raises(UserError, match="not found or corrupted"):
        open_split(f"flowers102:{tmp_path}", "test")
    monkeypatch.setattr(Flowers102, "_check_integrity", lambda self: True)
    start = "flowers-102/jpg/image_0000"
    with pytest.warns(UserWarning, match="2 images instead of 6149$|2 images instead of 6149;"):
        test = open_split(f"flowers102:{tmp_path}", "test", counts="warn")
    assert test.ids.tolist() == [f"{start}5.jpg", f"{start}6.jpg"] and test.y.tolist() == [0, 101]
    trainval = opened("flowers102", tmp_path, "trainval")
    assert trainval.y.tolist() == [101, 0, 1, 1] and trainval.metric == "mean_per_class"
    assert trainval.classes[101] == "blackberry lily"


def test_food101(tmp_path, picture, opened) -> None:
    root = tmp_path / "food-101"
    for split in ("train", "test"):
        listed = {name: [f"{name}/{split}{k}" for k in range(2)] for name in ("apple_pie", "waffles")}
        (root / "meta").mkdir(parents=True, exist_ok=True)
        (root / "meta" / f"{split}.json").write_text(json.dumps(listed))
        for path in [path for paths in listed.values() for path in paths]:
            picture(root / "images" / f"{path}.jpg")
    test = opened("food101", tmp_path)
    assert test.ids[3] == "food-101/images/waffles/test1.jpg" and test.y.tolist() == [0, 0, 1, 1]
    assert test.classes == ["apple_pie", "waffles"] and test.metric == "top1"


def test_pets(tmp_path, picture, text, opened) -> None:
    root = tmp_path / "oxford-iiit-pet"
    lines = ["Abyssinian_1 1 1 1", "beagle_1 2 2 1", "beagle_2 2 2 1"]
    for line in lines:
        picture(root / "images" / f"{line.split()[0]}.jpg")
    text(root / "annotations" / "trainval.txt", *lines[:2])
    text(root / "annotations" / "test.txt", lines[2])
    train = opened("pets", tmp_path, "train")
    assert train.y.tolist() == [0, 1] and train.classes == ["Abyssinian", "Beagle"]
    assert train.metric == "mean_per_class" and train.split == "train"
    assert opened("pets", tmp_path, "trainval").split == "train"
