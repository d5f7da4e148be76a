"""Crops of a detection set's objects, and of what is beside them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.ops import box_iou

from evaluation.ranking.inputs import objects as module
from evaluation.ranking.inputs.objects import BACKGROUND, SIDE, crop, open_objects
from evaluation.tasks.detection.datasets.clipart_boxes import open_clipart_boxes
from sslkit.errors import UserError


@pytest.fixture(scope="module")
def split():
    return open_objects("clipart_boxes", "test")


def test_every_object_is_a_crop_of_its_class_with_a_background_beside_it(split) -> None:
    boxes = open_clipart_boxes("test", seed=0)
    assert split.classes == [*boxes.classes, BACKGROUND] and split.metric == "top1"
    found = np.bincount(split.y)
    expected = np.bincount(np.concatenate([boxes.target(row)["labels"].numpy() - 1 for row in range(len(boxes))]))
    assert found[:-1].tolist() == expected.tolist()
    assert expected.sum() <= found[-1] <= 2 * expected.sum()
    assert split.images[0]["images"].shape == (3, SIDE, SIDE) and len(set(split.ids)) == len(split)


def test_the_crop_is_the_square_about_the_box_at_its_own_scale() -> None:
    image = torch.zeros(3, 200, 300, dtype=torch.uint8)
    image[0, 60:140, 100:180] = 200  # 80 x 80, so that the crop of 1.2 times its side has 96 pixels
    found = crop(image, torch.tensor([100.0, 60.0, 180.0, 140.0]))
    assert found.shape == (3, SIDE, SIDE)
    assert (found[0, 8:88, 8:88] == 200).all() and found[0].astype(int).sum() == 200 * 80 * 80


def test_beyond_the_image_its_edge_goes_on() -> None:
    image = torch.arange(50, dtype=torch.uint8).expand(3, 50, 50).contiguous()
    found = crop(image, torch.tensor([-20.0, 10.0, 20.0, 50.0]))
    assert (found[:, :, :20] == 0).all() and found.max() <= 24


def test_near_misses_overlap_an_object_a_little_and_the_others_hardly(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def kept(image: torch.Tensor, box: torch.Tensor) -> np.ndarray:
        made.append(box)
        return crop(image, box)

    monkeypatch.setattr(module, "crop", kept)
    split = open_objects("clipart_boxes", "test")
    boxes = open_clipart_boxes("test", seed=0)
    row_of = {str(name): row for row, name in enumerate(boxes.ids)}
    near, far = [], []
    for box, label, name in zip(made, split.y, split.ids, strict=True):
        if split.classes[label] == BACKGROUND:
            image = name.rsplit(" ", 2)[0]
            overlap = float(box_iou(box[None], boxes.target(row_of[image])["boxes"]).max())
            (near if overlap > 0.1 else far).append(overlap)
    assert len(near) > 100 and len(far) > 100 and max(near) <= 0.4


def test_it_is_the_same_for_a_seed_and_bounded(monkeypatch: pytest.MonkeyPatch, split) -> None:
    assert open_objects("clipart_boxes", "test").digest == split.digest
    assert open_objects("clipart_boxes", "test", seed=1).digest != split.digest
    monkeypatch.setattr(module, "MOST", 20)
    few = open_objects("clipart_boxes", "test")
    assert 20 <= (few.y < len(few.classes) - 1).sum() <= 22


def test_an_unknown_set_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no detection set 'clipart_boxs': did you mean 'clipart_boxes'"):
        open_objects("clipart_boxs", split="train")
    with pytest.raises(UserError):
        open_objects(f"coco:{tmp_path}", split="train")
