"""Some rows of a split: the same images, labels and names, read in the same ways."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import evaluation
from evaluation.datasets import open_split
from evaluation.ranking.inputs.candidates import draw_images
from sslkit.errors import UserError


def test_rows_are_those_of_the_whole() -> None:
    whole = open_split("clipart", "train")
    rows = np.array([5, 900, 17])
    part = whole.take(rows)
    assert len(part) == 3 and (part.y == whole.y[rows]).all() and (part.ids == whole.ids[rows]).all()
    batch, expected = part.images.__getitems__([2, 0]), whole.images.__getitems__([17, 5])
    assert (batch["images"] == expected["images"]).all() and batch["index"].tolist() == [2, 0]
    assert part.digest != whole.digest and part.digest != whole.take(rows[::-1]).digest
    small = part.images.at(image_size=16, channels=1, fit="crop")
    assert small.__getitems__([1])["images"].shape == (1, 1, 16, 16) and small.digest != part.images.digest


def test_an_unreadable_image_is_not_taken_for_another(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for k in range(4):
            Image.new("RGB", (8, 8), (40 * k, 90, 60)).save(tmp_path / name / f"{k}.png")
    (tmp_path / "a" / "1.png").write_bytes(b"no image")
    part = open_split(tmp_path, "train", on_error="skip").take(np.array([0, 1, 5]))
    batch = part.images.__getitems__([0, 1, 2])
    assert batch["index"].tolist() == [0, -1, 2]
    features = evaluation.extract("random:narrow_resnet", part, "train", cache=None, image_size=8, progress=False)
    assert len(features) == 2 and len(features.unreadable) == 1


def test_a_sample_has_the_same_number_of_each_class_whatever_the_order() -> None:
    task = open_split("digits", "train")
    part = draw_images(task, 100, seed=0)
    assert np.bincount(part.y).tolist() == [10] * 10
    assert set(draw_images(task.take(np.arange(len(task))[::-1]), 100, seed=0).ids) == set(part.ids)
    assert set(draw_images(task, 100, seed=1).ids) != set(part.ids)
    assert draw_images(task, None, 0) is task and draw_images(task, 10**6, 0) is task
    with pytest.raises(UserError, match="at least 20"):
        draw_images(task, 19, seed=0)


def test_scripts_of_glyphs_are_learnt_from_other_letters() -> None:
    train, test = (open_split("glyph_scripts", split) for split in ("train", "test"))
    assert len(train) + len(test) == 40760 and len(train.classes) == 137
    assert np.bincount(test.y).min() >= 40 and set(train.ids).isdisjoint(test.ids)
