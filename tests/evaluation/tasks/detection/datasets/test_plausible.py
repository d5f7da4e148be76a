"""Boxes and masks that cannot be right are refused in one line before anything is trained, whoever reads them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("faster_coco_eval")

from evaluation.tasks.detection.datasets.boxes import Boxes, Instances
from evaluation.tasks.detection.datasets.clipart_boxes import open_clipart_boxes
from evaluation.tasks.detection.datasets.plausible import check_plausible, corners_line, flaws
from evaluation.tasks.detection.datasets.sources import open_boxes
from sslkit.errors import UserError

Json = dict[str, Any]


def corners(row: Json) -> None:
    x, y, w, h = row["bbox"]
    row["bbox"] = [x, y, x + w, y + h]


SPOILT: dict[str, tuple[Callable[[Json], None], str]] = {
    "relative": (lambda row: row.update(bbox=[value / 128 for value in row["bbox"]]), "which are shares of an image"),
    "corners": (corners, "outside its image|elsewhere than its box"),
    "small area": (lambda row: row.update(area=0), "an area of 0 or less"),
    "negative area": (lambda row: row.update(area=-3.5), "an area of 0 or less"),
    "large area": (lambda row: row.update(area=9000), "an area larger than its box"),
    "polygon": (lambda row: row.update(segmentation=[[1, 1, 9, 1, 9, 7]]), "an outline that lies elsewhere"),
    "rotation": (lambda row: row.update(attributes={"rotation": 12.5}), "annotations are rotated"),
    "angle": (lambda row: row.update(angle=-90), "annotations are rotated"),
}


@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize("name", SPOILT)
def test_coco(name: str, masks: bool, own: Path, change: Callable[..., None]) -> None:
    spoil, said = SPOILT[name]
    change(lambda content: [spoil(row) for row in content["annotations"]])
    with pytest.raises(UserError, match=said) as error:
        open_boxes(f"coco:{own}", "train", masks=masks)
    assert "train.json" in str(error.value) and "\n" not in str(error.value)


def test_what_is_right_passes(own: Path, change: Callable[..., None]) -> None:
    change(lambda content: [row.update(rotation=0, attributes={"rotation": 360.0}) for row in content["annotations"]])
    assert len(open_boxes(f"coco:{own}", "train")) == 12


def test_run_lengths_of_another_object(own: Path, change: Callable[..., None]) -> None:
    def exchange(content: Json) -> None:
        shapes = [row["segmentation"] for row in content["annotations"]]
        for row, shape in zip(content["annotations"], [*shapes[1:], shapes[0]], strict=True):
            row["segmentation"] = shape

    change(exchange)
    with pytest.raises(UserError, match=r"coco:.* \(train\): \d+ of \d+ objects have an outline that lies elsewhere"):
        open_boxes(f"coco:{own}", "train")
    assert len(open_boxes(f"coco:{own}", "train", masks=False)) == 12


def test_sizes_that_could_be_corners_are_said() -> None:
    rng = np.random.default_rng(0)
    low = rng.integers(1, 40, (60, 2))
    right = np.concatenate([low, low + rng.integers(5, 60, (60, 2))], 1).astype(np.float64)
    as_sizes = np.concatenate([low, low + right[:, 2:]], 1)  # [x, y, w, h] made of corners
    assert not corners_line(right, "boxes.json")
    assert "every width and height of 60 boxes is larger than their left and upper edge" in corners_line(as_sizes, "f")
    assert not corners_line(as_sizes[:19], "f")


def spoilt(**changed: Any) -> Boxes:
    data = open_clipart_boxes("test", seed=0).take(range(20))
    return replace(data, instances=replace(data.instances, **changed))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda own: {"boxes": own.boxes / 128}, "shares of an image"),
        (lambda own: {"boxes": own.boxes[:, [2, 3, 0, 1]]}, "no area"),
        (lambda own: {"boxes": own.boxes + 100}, "a box outside its image"),
        (lambda own: {"area": 0 * own.area}, "an area of 0 or less"),
        (lambda own: {"area": 50 * own.area}, "an area larger than its box"),
        (
            lambda own: {"boxes": own.boxes[::-1].copy(), "area": own.area[::-1].copy()},
            "an outline that lies elsewhere",
        ),
    ],
)
def test_boxes_of_ones_own(change: Callable[[Instances], dict], said: str) -> None:
    data = spoilt(**change(open_clipart_boxes("test", seed=0).take(range(20)).instances))
    with pytest.raises(UserError, match=rf"clipart_boxes \(test\): \d+ of {len(data.instances.boxes)} objects.*{said}"):
        open_boxes(data, "test")
    with pytest.warns(UserWarning, match=said):
        check_plausible(data, refuse=False)


def test_a_set_without_objects_has_no_flaws() -> None:
    nothing = np.empty((0, 4))
    assert not list(flaws(nothing, np.empty((0, 2)), np.empty(0), np.empty(0, bool), nothing))
