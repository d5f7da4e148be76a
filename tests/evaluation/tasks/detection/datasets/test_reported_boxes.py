"""Public reports about files in COCO's format in other libraries, each written down as the file that it is about."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("faster_coco_eval")

from evaluation.tasks.detection.coco_ap import coco_ap
from evaluation.tasks.detection.datasets.sources import open_boxes
from sslkit.errors import UserError

Json = dict[str, Any]
Change = Callable[..., None]


def refused(own: Path, said: str, split: str = "train") -> None:
    with pytest.raises(UserError, match=said) as error:
        open_boxes(f"coco:{own}", split)
    assert "\n" not in str(error.value)


def test_numbers_from_0_count_like_others(own: Path, change: Change) -> None:
    """cocodataset/cocoapi's issue 507, cvat's pull 748: an object with the id 0 was taken for one that is not found."""

    def from_0(content: Json) -> None:
        images = {image["id"]: place for place, image in enumerate(content["images"])}
        for image in content["images"]:
            image["id"] = images[image["id"]]
        for place, row in enumerate(content["annotations"]):
            row.update(id=place, image_id=images[row["image_id"]], category_id=row["category_id"] - 3)
        for category in content["categories"]:
            category["id"] -= 3

    before = open_boxes(f"coco:{own}", "test")
    for split in ("train", "test"):
        change(from_0, split)
    data = open_boxes(f"coco:{own}", "test")
    targets = [data.target(row) for row in range(len(data))]
    exact = [{**target, "scores": torch.ones(len(target["labels"]))} for target in targets]
    assert data.category_ids[0] == 0 and np.array_equal(data.instances.labels, before.instances.labels)
    for kind in ("box", "mask"):
        assert coco_ap(exact, targets, kind)["coco_ap"] == pytest.approx(1)


def test_file_names_of_windows_are_found(own: Path, change: Change) -> None:
    r"""AILab-CVC/YOLO-World's issue 535, X-AnyLabeling's 700: `images\000.png` is no file elsewhere."""
    before = open_boxes(f"coco:{own}", "train")

    def windows(content: Json) -> None:
        for image in content["images"]:
            image["file_name"] = image["file_name"].replace("/", "\\")

    change(windows)
    data = open_boxes(f"coco:{own}", "train")
    assert len(data) == len(before) == 12 and torch.equal(data[3][0], before[3][0])
    assert list(data.ids) == list(before.ids)


@pytest.mark.parametrize("counts", [[10, 20, 128 * 96 - 30], [0, 5]])
def test_run_lengths_of_an_image_of_another_size_are_refused(own: Path, change: Change, counts: list[int]) -> None:
    """maskrcnn-benchmark's pulls 679 and 859: height and width exchanged, or of the image before it was resized."""
    change(lambda content: content["annotations"][0].update(segmentation={"size": [128, 96], "counts": counts}))
    refused(own, r"train\.json: annotation \d+: .*(128|size|runs)")


@pytest.mark.parametrize(
    ("part", "values", "said"),
    [
        ("annotations", {"image_id": "150"}, "unknown image_id"),  # Label Studio's numbers as text
        ("annotations", {"bbox": ["1", "2", "3", "4"]}, r"is not \[x, y, width, height\]"),
        ("annotations", {"bbox": [1, 2, float("nan"), 4]}, "is not finite"),  # pandas' missing value, as JSON of Python
        ("annotations", {"bbox": []}, r"is not \[x, y, width, height\]"),
        ("annotations", {"bbox": [40, 40, -20, -20]}, "no area"),  # drawn from right to left
        ("images", {"height": 128.0}, "must be integers, got 128.0"),
        ("images", {"width": None}, "must be integers, got None"),
        ("images", {"file_name": "https://labels.org/1.png"}, "are not below"),
    ],
)
def test_values_of_other_kinds_are_named(own: Path, change: Change, part: str, values: Json, said: str) -> None:
    """Each was a traceback while training, or a box somewhere else."""
    change(lambda content: content[part][0].update(values))
    refused(own, said)


def test_a_file_of_windows_begins_with_a_mark(own: Path) -> None:
    """`Unexpected UTF-8 BOM`: Notepad and PowerShell write it."""
    path = own / "train.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(open_boxes(f"coco:{own}", "train")) == 12


def test_outlines_that_are_empty_lists_are_boxes_alone(own: Path, change: Change) -> None:
    """Exports of boxes have `"segmentation": []`, which mask functions cannot read."""
    for split in ("train", "test"):
        change(lambda content: [row.update(segmentation=[]) for row in content["annotations"]], split)
    assert not open_boxes(f"coco:{own}", "train").has_masks


def test_an_object_of_an_image_that_is_left_out_is_named(own: Path, change: Change) -> None:
    """cocodataset/cocoapi's issue 600: a part of the images with the annotations of all."""
    change(lambda content: content["images"].pop())
    refused(own, "annotations have an unknown image_id")


def test_one_file_in_two_rows_is_refused(own: Path, change: Change) -> None:
    """Merged exports: the picture is trained on twice, each time with a part of its boxes."""

    def twice(content: Json) -> None:
        content["images"].append({**content["images"][0], "id": 9999})

    change(twice)
    refused(own, "file_names of images occur more than once")
