"""What is tuned and tested on: labels matched by name, rows in the order of their names."""

import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from evaluation.datasets import Reading, open_split
from evaluation.datasets.base import Split
from evaluation.protocols.base import Subject
from evaluation.tuning.task import open_task
from sslkit.data.arrays import ArrayImages
from sslkit.data.decode.scale import Scale
from sslkit.data.images import Identity, ImageOptions
from sslkit.errors import UserError
from sslkit.models.loading import Loading, load
from sslkit.models.model import Model

TRAIN, TEST = open_split("digits", "train"), open_split("digits", "test")


def model(size: int = 8) -> Model:
    """A network of squares of `size` pixels, also of fewer than `sslkit.load` allows."""
    net, unchecked = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten()), inspect.unwrap(load)
    return unchecked(net, loading=Loading(image_size=size, in_chans=1))


def some(split: Split, rows: np.ndarray, **changes: object) -> Split:
    """A split of some rows of digits, in the order given."""
    y = split.y[rows]
    identity = Identity("digits", labels=y if y.ndim == 1 else None, classes=list(split.classes))
    images = ArrayImages(split.images.pixels[rows], identity, ImageOptions(split=split.split))
    return replace(split, images=images, y=y, ids=split.ids[rows], **changes)


def test_a_source_is_opened_with_all_its_splits() -> None:
    task = open_task(model(), "digits")
    assert (task.name, task.metric, len(task.classes)) == ("digits", "top1", 10)
    assert (task.train.y == TRAIN.y).all() and (task.test.ids == TEST.ids).all() and task.train.own_val is None


def test_the_digest_knows_by_which_range_deep_images_are_read(tmp_path: Path) -> None:
    for row in range(20):
        path = tmp_path / ("train", "test")[row % 2] / f"class{row // 2 % 2}" / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(TRAIN.images.pixels[row, 0].astype(np.uint16) * 16).save(path)
    given = {split: open_split(tmp_path, split) for split in ("train", "test")}
    plain, trained = (open_task(replace(model(), scale=own), given) for own in (None, Scale((0.0, 2000.0))))
    found = Reading(range=[0, 4095])
    assert plain.train.centres.parts[0].range == (0, 4095) and trained.test.centres.parts[0].range == (0, 2000)
    assert trained.digest != plain.digest == open_task(trained.model, tmp_path, found).digest


def test_validation_images_of_the_set_are_known_and_val_alone_is_the_test() -> None:
    own = open_task(model(), {"train": TRAIN, "val": some(TEST, np.arange(90)), "test": some(TEST, np.arange(90, 359))})
    assert own.train.own_val.sum() == 90 and len(own.train) == len(TRAIN) + 90 and len(own.test) == 269
    assert (own.train.y[own.train.own_val] == TEST.y[:90]).all()
    alone = open_task(model(), {"train": TRAIN, "val": TEST})
    assert alone.train.own_val is None and len(alone.test) == len(TEST)


def test_test_labels_are_matched_by_the_names_of_the_classes() -> None:
    backwards = replace(TEST, y=9 - TEST.y, classes=list(TEST.classes)[::-1])
    assert (open_task(model(), {"train": TRAIN, "test": backwards}).test.y == TEST.y).all()


def test_rows_come_in_the_order_of_their_names() -> None:
    shuffled = some(TRAIN, np.random.default_rng(0).permutation(len(TRAIN)))
    a, b = (open_task(model(), {"train": train, "test": TEST}) for train in (TRAIN, shuffled))
    chosen = [task.held_out(np.ones(len(TRAIN), bool), 0.2, 0) for task in (a, b)]
    names = [task.train.ids[task.rows(rows)].tolist() for task, rows in zip((a, b), chosen, strict=True)]
    assert names[0] == names[1] and len(names[0]) == pytest.approx(0.2 * len(TRAIN), rel=0.02)
    pixels = [
        task.train.centres.__getitems__(task.rows(rows).tolist()) for task, rows in zip((a, b), chosen, strict=True)
    ]
    assert torch.equal(pixels[0]["images"], pixels[1]["images"])


def test_images_of_one_group_are_held_out_together() -> None:
    groups = np.arange(len(TRAIN)) // 3
    first = TRAIN.y[(groups * 3).clip(max=len(TRAIN) - 1)]
    task = open_task(model(), {"train": replace(TRAIN, y=first, groups=groups), "test": TEST})
    held = task.held_out(np.ones(len(TRAIN), bool), 0.2, 0)
    assert 0.1 < held.mean() < 0.3
    assert all(held[groups == group].all() or not held[groups == group].any() for group in np.unique(groups))


def test_sizes_small_arrays_are_whole_and_larger_ones_cut() -> None:
    task = open_task(model(8), "digits")
    assert task.train.crops.image_size == task.test.centres.image_size == 8
    shrunk = open_task(model(6), "digits")
    assert shrunk.train.crops.image_size == 8 and shrunk.test.centres.image_size == 6


def test_files_are_cut_whole_and_judged_as_features_are(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for name in "ab":
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(3):
                flat = Image.fromarray(np.full((60, 40, 3), 80 * number, np.uint8))
                flat.save(tmp_path / split / name / f"{number}.png")
    wide = load(nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten()), image_size=70)
    task = open_task(wide, tmp_path)
    assert task.train.crops.image_size == 80 and task.test.centres.image_size == 70
    assert task.test.centres.parts[0].options.resize == wide.resizing.resize == 80
    assert task.train.crops.__getitems__([0])["aspect"].item() == pytest.approx(40 / 60)
    assert task.train.centres.__getitems__([0])["aspect"].item() == 1
    asked = open_task(wide, tmp_path, Reading(resize=90, interpolation="bilinear"))
    assert (asked.test.centres.parts[0].options.resize, asked.model.resizing.interpolation) == (90, "bilinear")
    assert Subject(wide, tmp_path, Reading(resize=90)).model.resizing.resize == 90
    pixels = load("pixels")
    assert Subject(pixels, tmp_path, Reading(resize=90)).model.resizing.resize == pixels.image_size


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"train": TRAIN}, "no test"),
        ({"test": TEST}, "no train"),
        (TRAIN, "give {"),
        ({"train": replace(TRAIN, y=np.where(np.arange(len(TRAIN)) < 5, -1, TRAIN.y)), "test": TEST}, "5 of 1438"),
        ({"train": some(TRAIN, np.flatnonzero(TRAIN.y != 7)), "test": TEST}, "no image of: 7"),
        ({"train": TRAIN, "test": replace(TEST, classes=["ten", *TEST.classes[1:]])}, "no image of: ten"),
        ({"train": TRAIN, "test": replace(TEST, y=np.ones((len(TEST), 3), np.int8))}, "several labels"),
        ({"train": replace(TRAIN, y=None), "test": TEST}, "has no labels"),
    ],
)
def test_what_cannot_be_tuned_on_is_one_clear_error(given: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_task(model(), given)


def test_nothing_to_hold_out_is_said() -> None:
    task = open_task(model(), "digits")
    one_each = np.zeros(len(TRAIN), bool)
    one_each[np.unique(TRAIN.y, return_index=True)[1]] = True
    with pytest.raises(UserError, match="no class has 2"):
        task.held_out(one_each, 0.1, 0)


def test_files_of_one_name_in_two_splits_stay_two_images(tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        for name in "ab":
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(3):
                colour = (40 * number, 90 * ["train", "val", "test"].index(split), 99 * (name == "a"))
                Image.new("RGB", (20, 20), colour).save(tmp_path / split / name / f"{number}.png")
    task = open_task(load(nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten()), image_size=16), tmp_path)
    wanted = [f"{split}/{name}/{number}.png" for split in ("train", "val") for name in "ab" for number in range(3)]
    assert sorted(task.train.ids) == wanted and "a/0.png" in task.test.ids
    everything = np.ones(12, bool)
    assert {task.held_out(everything, 0.2, seed).sum() for seed in range(5)} == {2}  # merged ones would go in pairs


def test_counts_reaches_the_published_set(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def opened(source: str, options: ImageOptions, needs_labels: bool) -> Split:
        asked.append(options.counts)
        return TRAIN if options.split == "train" else TEST

    monkeypatch.setattr("evaluation.datasets.split_of", opened)
    open_task(model(), "digits")
    open_task(model(), "digits", Reading(counts="warn"))
    assert asked == ["raise", "raise", "warn", "warn"]
