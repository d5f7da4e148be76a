"""Each published set that is parsed here, from a few pictures laid out as its authors pack them."""

import json
from pathlib import Path

import numpy as np
import pytest

from evaluation.datasets import open_split
from sslkit.data.published import caltech101, voc07
from sslkit.errors import UserError


def test_caltech101(tmp_path, picture, monkeypatch, opened) -> None:
    monkeypatch.setattr(caltech101, "PER_CLASS", 3)
    root = tmp_path / "caltech101" / "101_ObjectCategories"
    for name in ("accordion", "yin_yang", "BACKGROUND_Google"):
        for number in range(1, 9):
            picture(root / name / f"image_{number:04d}.jpg")
    train, test = (opened("caltech101", tmp_path, split) for split in ("train", "test"))
    assert train.classes == test.classes == ["accordion", "yin_yang"] and train.metric == "mean_per_class"
    assert np.bincount(train.y).tolist() == [3, 3] and np.bincount(test.y).tolist() == [5, 5]
    assert not set(train.ids) & set(test.ids) and "accordion/image_0001.jpg" in {*train.ids, *test.ids}
    assert train.ids.tolist() == opened("caltech101", tmp_path, "train1").ids.tolist()
    other = opened("caltech101", tmp_path, "train2")
    assert set(other.ids) != set(train.ids) and "draw 2" in other.note
    picture(root / "accordion" / "image_0000.jpg")  # a file more moves at most one other
    assert len(set(opened("caltech101", tmp_path, "train").ids) & set(train.ids)) >= 5


def test_dtd_and_its_partitions(tmp_path, picture, text, opened, named) -> None:
    root = tmp_path / "dtd" / "dtd"
    for name in ("banded", "dotted"):
        for number in range(4):
            picture(root / "images" / name / f"{name}_000{number}.jpg")
    for partition, shift in ((1, 0), (3, 1)):
        for place, split in enumerate(("train", "val", "test")):
            number = (place + shift) % 4
            text(
                root / "labels" / f"{split}{partition}.txt", *(f"{n}/{n}_000{number}.jpg" for n in ("banded", "dotted"))
            )
    trainval = opened("dtd", tmp_path, "trainval")
    assert sorted(trainval.ids) == [f"images/{n}/{n}_000{k}.jpg" for n in ("banded", "dotted") for k in (0, 1)]
    assert trainval.classes == ["banded", "dotted"] and "partition 1" in trainval.note
    third = opened("dtd", tmp_path, "test3")
    assert named(third) == {f"images/{n}/{n}_0003.jpg": n for n in ("banded", "dotted")} and "partition 3" in third.note
    with pytest.raises(UserError, match=r"labels/test2.txt is missing"):
        open_split(f"dtd:{tmp_path}", "test2")


def test_sun397_and_its_partitions(tmp_path, picture, text, opened) -> None:
    root = tmp_path / "SUN397"
    paths = ["/a/abbey/sun_a.jpg", "/a/apartment_building/outdoor/sun_b.jpg", "/z/zoo/sun_c.jpg", "/z/zoo/sun_d.jpg"]
    for path in paths:
        picture(root / path[1:])
    text(root / "ClassName.txt", "/a/abbey", "/a/apartment_building/outdoor", "/z/zoo")
    text(root / "Training_01.txt", *paths[:3])
    text(root / "Testing_01.txt", paths[3])
    text(tmp_path / "Partitions" / "Testing_10.txt", *paths[1:3])
    train = opened("sun397", tmp_path, "train")
    assert train.classes == ["abbey", "apartment_building/outdoor", "zoo"] and train.y.tolist() == [0, 1, 2]
    assert train.ids[1] == "a/apartment_building/outdoor/sun_b.jpg"
    assert opened("sun397", tmp_path).y.tolist() == [2] and opened("sun397", tmp_path, "test10").y.tolist() == [1, 2]
    with pytest.raises(UserError, match=r"Training_04.txt is missing.*9348"):
        open_split(f"sun397:{tmp_path}", "train4")
    text(root / "Testing_01.txt", "/x/unknown/sun_e.jpg")
    with pytest.raises(UserError, match=r"not written as published: KeyError: 'x/unknown'"):
        open_split(f"sun397:{tmp_path}", "test")


def test_voc07_is_one_column_a_class(tmp_path, picture, text, opened) -> None:
    root = tmp_path / "VOCdevkit" / "VOC2007"
    lists = root / "ImageSets" / "Main"
    rng = np.random.default_rng(0)
    truth = rng.integers(-1, 2, (3, 20))
    names = ["000005", "000007", "000012"]
    text(lists / "trainval.txt", *names)
    for column, name in enumerate(voc07.CLASSES):
        text(lists / f"{name}_trainval.txt", *(f"{n} {truth[k, column]:2d}" for k, n in enumerate(names)))
    for name in names:
        picture(root / "JPEGImages" / f"{name}.jpg")
    with pytest.raises(UserError, match="'trainval' has 3 images instead of 5011"):
        open_split(f"voc07:{tmp_path}", "trainval")
    split = opened("voc07", tmp_path, "trainval")
    assert split.y.dtype == np.int8 and np.array_equal(split.y, truth) and split.metric == "map11"
    assert split.ids.tolist() == [f"JPEGImages/{name}.jpg" for name in names] and split.images.labels is None
    assert len(set(split.classes)) == 20 and split.classes == sorted(split.classes)
    before = split.digest
    text(lists / "tvmonitor_trainval.txt", *(f"{n} {-truth[k, 19] or 1}" for k, n in enumerate(names)))
    assert opened("voc07", tmp_path, "trainval").digest != before
    text(lists / "tvmonitor_trainval.txt", "000005 1")
    with pytest.raises(UserError, match=r"tvmonitor_trainval.txt must give 1, 0 or -1.*000007"):
        open_split(f"voc07:{tmp_path}", "trainval")


WNIDS = ["n01440764", "n01443537", "n15075141"]


@pytest.fixture
def imagenet(tmp_path, picture) -> Path:
    for wnid in WNIDS:
        for number in range(10):
            picture(tmp_path / "imagenet" / "train" / wnid / f"{wnid}_{number}.JPEG")
        picture(tmp_path / "imagenet" / "val" / wnid / f"ILSVRC2012_val_{wnid[-1]}.JPEG")
    (tmp_path / "imagenet" / "train" / "not a class").mkdir()
    return tmp_path


def test_imagenet(imagenet, opened) -> None:
    train, test = (opened("imagenet", imagenet, split) for split in ("train", "test"))
    assert train.classes == test.classes == WNIDS and np.bincount(train.y).tolist() == [10] * 3
    assert test.ids[2] == "val/n15075141/ILSVRC2012_val_1.JPEG" and test.y.tolist() == [0, 1, 2]
    assert opened("imagenet", imagenet, "val").digest == test.digest
    assert opened("imagenet", imagenet / "imagenet", "test").ids.tolist() == test.ids.tolist()  # the folder itself


def test_imagenet_with_unsorted_validation_images(tmp_path, picture) -> None:
    picture(tmp_path / "val" / "ILSVRC2012_val_00000001.JPEG")
    with pytest.raises(UserError, match="no folders of WordNet ids"):
        open_split(f"imagenet:{tmp_path}", "test")


def test_imagenet_subsets_are_drawn_or_read_from_the_list(imagenet, text, opened) -> None:
    drawn = opened("imagenet_10pct", imagenet, "train")
    assert np.bincount(drawn.y).tolist() == [1, 1, 1] and "seed 0, not SimCLR's" in drawn.note
    assert len(opened("imagenet_10pct", imagenet, "test")) == 3
    with pytest.raises(UserError, match="fewer than one for each of 3 classes"):
        open_split(f"imagenet_1pct:{imagenet}", "train")
    listed = [f"{wnid}_{number}.JPEG" for wnid in WNIDS for number in (4, 7)]
    text(imagenet / "imagenet" / "imagenet_subsets" / "1percent.txt", *listed[::-1])
    split = opened("imagenet_1pct", imagenet, "train")
    assert sorted(name.rpartition("/")[2] for name in split.ids) == sorted(listed) and "SimCLR's 1perc" in split.note
    assert np.bincount(split.y).tolist() == [2, 2, 2]
    text(imagenet / "imagenet" / "imagenet_subsets" / "1percent.txt", *listed, "n01440764_99999.JPEG")
    with pytest.raises(UserError, match="lists 7 images, 1 of which are not in"):
        open_split(f"imagenet_1pct:{imagenet}", "train")


def test_imagenet100_takes_its_classes_from_a_list(imagenet, text, opened) -> None:
    with pytest.raises(UserError, match=r"imagenet100.txt is missing"):
        open_split(f"imagenet100:{imagenet}", "train")
    text(imagenet / "imagenet" / "imagenet100.txt", WNIDS[2], WNIDS[0])
    train = opened("imagenet100", imagenet, "train")
    assert train.classes == [WNIDS[0], WNIDS[2]] and len(train) == 20 and "class list" in train.note
    assert opened("imagenet100", imagenet).classes == train.classes


def test_cub2010(tmp_path, picture, text, opened, named) -> None:
    root = tmp_path / "CUB_200_2010"
    paths = ["001.Albatross/a_1.jpg", "001.Albatross/a_2.jpg", "002.Auk/b_1.jpg", "002.Auk/b_2.jpg"]
    for path in paths:
        picture(root / "images" / path)
    text(root / "lists" / "train.txt", paths[0], paths[3])
    text(root / "lists" / "test.txt", paths[2], paths[1])
    assert named(opened("cub2010", tmp_path)) == {f"images/{p}": p.partition("/")[0] for p in paths[1:3]}
    whole = opened("cub2010", tmp_path, "all")
    assert whole.ids.tolist() == [f"images/{path}" for path in paths] and whole.y.tolist() == [0, 0, 1, 1]
    with pytest.raises(UserError, match="is missing"):
        open_split(f"cub2011:{root}", "test")


def test_cub2011_parts_images_and_classes(tmp_path, picture, text, opened, named) -> None:
    root = tmp_path / "CUB_200_2011"
    classes = [f"{k + 1:03d}.Bird_{k}" for k in range(8)]
    paths = [f"{name}/{name[4:]}_{number}.jpg" for name in classes for number in range(3)]
    for path in paths:
        picture(root / "images" / path)
    text(root / "classes.txt", *(f"{k + 1} {name}" for k, name in enumerate(classes)))
    text(root / "images.txt", *(f"{k + 1} {path}" for k, path in enumerate(paths)))
    text(root / "image_class_labels.txt", *(f"{k + 1} {k // 3 + 1}" for k in range(24)))
    text(root / "train_test_split.txt", *(f"{k + 1} {int(k % 3 == 0)}" for k in range(24)))
    train, test, whole = (opened("cub2011", tmp_path, split) for split in ("train", "test", "all"))
    assert (len(train), len(test), len(whole)) == (8, 16, 24) and not set(train.ids) & set(test.ids)
    assert all(
        name.startswith(f"images/{train.classes[label]}/") for name, label in zip(train.ids, train.y, strict=True)
    )
    parts = {split: opened("cub2011", tmp_path, split) for split in ("base", "novel_val", "novel_test")}
    assert parts["base"].classes == classes[::2]
    assert parts["novel_val"].classes == [classes[1], classes[5]]
    assert parts["novel_test"].classes == [classes[3], classes[7]]
    assert named(parts["novel_test"]) == {
        f"images/{path}": classes[k // 3] for k, path in enumerate(paths) if k // 3 in (3, 7)
    }


@pytest.fixture
def plants(tmp_path, picture) -> Path:
    """Two classes of 12 photos, two of each leaf, and a background."""
    root = tmp_path / "PlantVillage-Dataset" / "raw" / "color"
    leaves: dict[str, list[str]] = {}
    for name in ("Apple___healthy", "Tomato___healthy"):
        for k in range(12):
            picture(root / name / f"{name}_{k:02d}-uuid___RS_HL {k}.JPG")
            leaves.setdefault(f"rs_hl {k}", []).append(f"{name}:::{k // 2}.0")
    picture(root / "Background_without_leaves" / "image (1).jpg")
    (tmp_path / "PlantVillage-Dataset" / "leaf-map.json").write_text(json.dumps(leaves))
    return tmp_path


def test_plantvillage_keeps_the_photos_of_a_leaf_together(plants, opened) -> None:
    train, test, whole = (opened("plantvillage", plants, split) for split in ("train", "test", "all"))
    assert whole.classes == ["Apple___healthy", "Tomato___healthy"] and len(whole) == 24
    assert (
        "24 images" in whole.note and "12 leaves" in whole.note and "Background_without_leaves left out" in whole.note
    )
    assert len(np.unique(whole.groups)) == 12 and (np.bincount(whole.groups) == 2).all()
    pairs = {(name.partition("/")[0], int(name.split()[-1].split(".")[0]) // 2): set() for name in whole.ids}
    for part, split in ((0, train), (1, test)):
        for name in split.ids:
            pairs[name.partition("/")[0], int(name.split()[-1].split(".")[0]) // 2].add(part)
    assert all(len(parts) == 1 for parts in pairs.values())
    assert np.bincount(test.y).tolist() == [2, 2] and len(train) == 20 and not set(train.ids) & set(test.ids)
    assert len(np.unique(test.groups)) == 2


def test_plantvillage_without_the_leaves(plants, opened) -> None:
    (plants / "PlantVillage-Dataset" / "leaf-map.json").unlink()
    whole = opened("plantvillage", plants, "all")
    assert whole.groups is None and "photos of one leaf are not known" in whole.note
    with pytest.raises(UserError, match=r"the split 'test' needs leaf-map.json"):
        open_split(f"plantvillage:{plants}", "test")
