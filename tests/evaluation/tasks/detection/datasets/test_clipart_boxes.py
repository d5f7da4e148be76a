"""The generated set: boxes fit the ink, and nothing of test is in train."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from evaluation.tasks.detection.datasets import clipart_boxes
from evaluation.tasks.detection.datasets.clipart_boxes import CLASSES, COUNTS, MOST, SIZE, open_clipart_boxes
from evaluation.tasks.detection.datasets.sources import open_boxes
from sslkit.errors import UserError


@pytest.mark.parametrize("split", COUNTS)
def test_every_box_is_that_of_its_mask(split: str) -> None:
    data = open_boxes("clipart_boxes", split)
    assert len(data) == COUNTS[split] and data.classes == CLASSES and data.has_masks and data.split == split
    for row in range(len(data)):
        target = data.target(row)
        assert 1 <= len(target["labels"]) <= MOST and target["masks"].shape[1:] == (SIZE, SIZE)
        assert target["masks"].sum(0).max() == 1  # no drawing covers another
        for mask, box, area in zip(target["masks"].numpy(), target["boxes"].tolist(), target["area"], strict=True):
            rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            assert box == [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
            assert mask.sum() == area >= 50
    assert set(np.unique(data.instances.labels)) == {1, 2, 3, 4}
    assert np.bincount(data.instances.labels)[1:].min() > len(data.instances.labels) / 6


def test_an_image_shows_the_drawing_in_its_mask_and_the_photograph_beside_it() -> None:
    """Nearly all that is beside the mask has a colour of train's part of the photographs."""
    image, target = open_clipart_boxes("train", seed=0)[3]
    assert image.shape == (3, SIZE, SIZE) and image.dtype == torch.uint8
    ink = target["masks"].any(0).bool()
    assert 0.01 < ink.float().mean() < 0.8
    grounds = clipart_boxes._grounds("train")
    shades = {tuple(pixel) for ground in grounds for pixel in (ground.reshape(-1, 3) // 32).tolist()}
    beside = [tuple(pixel) in shades for pixel in (image[:, ~ink].T // 32).tolist()]
    assert np.mean(beside) > 0.97


def test_drawings_and_photographs_of_test_are_none_of_train() -> None:
    def hashes(split: str) -> list[set[str]]:
        drawings = clipart_boxes._drawings(split)
        return [{hashlib.sha256(np.asarray(one).tobytes()).hexdigest() for one in own} for own in drawings]

    train, test = hashes("train"), hashes("test")
    assert all(len(own) >= 120 for own in train) and all(len(own) >= 30 for own in test)
    assert not set.union(*train) & set.union(*test)
    for kept, held in zip(clipart_boxes._grounds("train"), clipart_boxes._grounds("test"), strict=True):
        assert kept.shape[1] + held.shape[1] == 640 and min(kept.shape[:2]) >= SIZE <= min(held.shape[:2])


def test_the_ground_of_a_drawing_is_white_that_is_joined_to_the_border() -> None:
    pixels = np.full((3, 9, 9), 255, np.uint8)
    pixels[:, 2:7, 2:7] = 0
    pixels[:, 4, 4] = 255  # white inside
    ground = clipart_boxes._ground(pixels)
    assert not ground[2:7, 2:7].any() and ground.sum() == 81 - 25


def test_the_seed_is_all_that_decides() -> None:
    first = open_clipart_boxes("test", seed=0).digest
    clipart_boxes._draw_split.cache_clear()
    np.random.seed(7)
    assert open_clipart_boxes("test", seed=0).digest == first
    other = open_clipart_boxes("test", seed=1)
    assert other.digest != first and "seed 1" in other.note
    assert open_clipart_boxes("train", seed=0).digest != first


@pytest.mark.slow
def test_another_process_makes_the_same_set_and_not_before_it_is_asked() -> None:
    code = "import sys; import evaluation.tasks.detection.protocols.detection; "
    code += "from evaluation.tasks.detection.datasets import clipart_boxes as own, sources; "
    code += "print(own._draw_split.cache_info().currsize, 'sklearn' in sys.modules, 'torchmetrics' in sys.modules); "
    code += "print(sources.open_boxes('clipart_boxes', 'test').digest)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["0 False False", open_clipart_boxes("test", seed=0).digest]


def test_images_are_photographs_when_saved(tmp_path) -> None:
    image, _ = open_clipart_boxes("train", seed=0)[0]
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / "one.png")
    assert len(Image.open(tmp_path / "one.png").getcolors(SIZE * SIZE)) > 1000


def test_an_unknown_split_is_said() -> None:
    with pytest.raises(UserError, match="clipart_boxes has no split 'val'"):
        open_boxes("clipart_boxes", "val")
