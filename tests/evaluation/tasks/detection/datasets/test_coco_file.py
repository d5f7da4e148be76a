"""What cannot be meant in a json of COCO's form is said in one line, before anything is read."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("faster_coco_eval")

from evaluation.tasks.detection.datasets.clipart_boxes import CLASSES
from evaluation.tasks.detection.datasets.sources import open_boxes
from evaluation.tasks.detection.measure import open_splits
from sslkit.errors import UserError

Json = dict[str, Any]


def drop(content: Json, part: str) -> None:
    content[part] = []


def first(**changed: Any) -> Callable[[Json], Any]:
    return lambda content: content["annotations"][0].update(changed)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda c: drop(c, "annotations"), "has no annotations"),
        (lambda c: drop(c, "images"), "has no images"),
        (lambda c: drop(c, "categories"), "has no categories"),
        (lambda c: c.pop("annotations"), 'it has no list "annotations"'),
        (lambda c: c["images"][3].pop("width"), r"images\[3\] lacks width"),
        (first(bbox=[120, 10, 30, 20]), "a box outside its image: x 120 to 150, y 10 to 30 in .* of 128 x 128"),
        (first(bbox=[-5, 10, 30, 20]), "a box outside its image: x -5 to 25"),
        (first(bbox=[5, 10, 0, 20]), "no area, a width or height below 0.01 pixels: x 5 to 5"),
        (first(bbox=[5, 10, 20, -2]), "no area, a width or height below 0.01 pixels: x 5 to 25, y 10 to 8"),
        (first(bbox=[5, 10, 20]), r"is not \[x, y, width, height\]: \[5, 10, 20\]"),
        (first(bbox=[5, 10, 20, float("nan")]), "is not finite"),
        (first(category_id=4), r"1 annotations have an unknown category_id: 4 \(the first is annotation 1000\)"),
        (first(category_id=[4]), r"unknown category_id: \[4\]"),
        (first(image_id=7), "1 annotations have an unknown image_id: 7"),
        (lambda c: c["annotations"].append(c["annotations"][0]), "1 ids of annotations occur more than once: 1000"),
        (lambda c: c["images"].append(c["images"][0]), "1 ids of images occur more than once: 150"),
        (lambda c: c["images"].append({**c["images"][0], "id": 9}), "1 file_names of images occur more than once"),
        (lambda c: c["categories"].append({"id": 3, "name": "x"}), "1 ids of categories occur more than once: 3"),
        (lambda c: c["categories"].append({"id": 5, "name": CLASSES[0]}), "1 names of categories occur"),
        (lambda c: c["images"][0].update(id="a"), "id of images must be integers, got 'a'"),
        (lambda c: c["images"][0].update(width=120.5), "height and width must be integers, got 120.5"),
        (
            lambda c: c["images"][0].update(width=120),
            r"images/000\.png is 128 x 128 pixels, its annotations say 120 x 128",
        ),
        (lambda c: c["images"][0].update(file_name="gone/1.png"), r"1 of 12 images are not below .*: gone/1\.png"),
        (lambda c: c["images"][0].update(file_name="000.png"), "found images/000.png instead: use that as file_name"),
        (lambda c: [row.update(iscrowd=1) for row in c["annotations"]], "has no object to train on: all are crowds"),
        (first(segmentation=[]), "1 of 2. annotations have no segmentation, ids 1000"),
        (first(segmentation="x"), "annotation 1000: segmentation must be a list of polygons or run lengths"),
        (first(segmentation={"size": [9, 9], "counts": [81]}), "annotation 1000: the run lengths have size"),
        (first(segmentation={"size": [128, 128], "counts": [64.0, 64.0]}), "annotation 1000: .* must be integers"),
        (first(segmentation={"size": [128, 128], "counts": "zzz"}), "annotation 1000: .*decoded"),
        (first(iscrowd="0"), "iscrowd of annotation 1000 is neither 0 nor 1: '0'"),
        (first(area="big"), "area of annotation 1000 is not a number: 'big'"),
        (first(bbox=[5, 10, 10**400, 20]), r"is not \[x, y, width, height\]"),
        (lambda c: c["images"][0].update(id=2**70), "id of images must be integers, got 11805916207174"),
        (first(segmentation={"size": [128, 128], "counts": [81]}), "annotation 1000: the run lengths cover 81 pixels"),
    ],
)
def test_bad_annotations_are_said_in_a_line(own: Path, change: Callable, how: Callable, message: str) -> None:
    change(how)
    with pytest.raises(UserError, match=message) as caught:
        open_boxes(f"coco:{own}", "train")
    assert "\n" not in str(caught.value) and str(own) in str(caught.value)


def test_categories_of_test_must_be_those_of_train(own: Path, change: Callable) -> None:
    def without(content: Json) -> None:
        content["annotations"] = [row for row in content["annotations"] if row["category_id"] != 17]

    change(without)
    with pytest.raises(
        UserError, match=r"test\.json has objects of categories without an object in train\.json: signs"
    ):
        open_boxes(f"coco:{own}", "test")
    change(lambda content: content["categories"][0].update(name="beasts"), "test")
    with pytest.raises(
        UserError, match=r"other names than train\.json for the category ids 90 \('animals', here 'beasts'"
    ):
        open_boxes(f"coco:{own}", "test")


def test_unreadable_files_are_said_before_anything_is_read(own: Path) -> None:
    path = own / "images/004.png"
    whole = path.read_bytes()
    path.write_bytes(b"not an image")
    with pytest.raises(UserError, match=r"cannot read .*004\.png: it is no image of a known format"):
        open_boxes(f"coco:{own}", "train")
    path.write_bytes(whole[: len(whole) // 2])
    data = open_boxes(f"coco:{own}", "train")  # its header is good
    with pytest.raises(UserError, match=r"cannot read .*004\.png"):
        data[4]


def test_what_the_folder_lacks_is_said(own: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no split 'val'"):
        open_boxes(f"coco:{own}", "val")
    (own / "test.json").write_text("{")
    with pytest.raises(UserError, match=r"test\.json cannot be read as json"):
        open_boxes(f"coco:{own}", "test")
    (own / "train.json").unlink()
    with pytest.raises(UserError, match=r"there is no .*train\.json; the folder must hold train\.json and test\.json"):
        open_boxes(f"coco:{own}", "test")


def test_masks_need_the_extra_and_boxes_do_not(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faster_coco_eval.core", None)
    with pytest.raises(UserError, match=r'^masks need faster-coco-eval .* pip install -e "\.\[detection\]"$'):
        open_boxes(f"coco:{own}", "train")
    assert len(open_boxes(f"coco:{own}", "train", masks=False)) == 12


def test_a_test_split_in_which_nothing_counts_is_said_before_the_training(own: Path, change: Callable) -> None:
    change(lambda content: [row.update(iscrowd=1) for row in content["annotations"]], "test")
    with pytest.raises(UserError, match="no object of its split 'test' counts: all are crowds or difficult"):
        open_splits(f"coco:{own}", empty="skip")
