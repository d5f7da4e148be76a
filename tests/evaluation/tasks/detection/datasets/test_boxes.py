"""The contract of a detection set, on sets small enough to write down."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from evaluation.tasks.detection.batches import mirror_image
from evaluation.tasks.detection.datasets.boxes import Boxes, Instances, for_training, learnable
from evaluation.tasks.detection.datasets.clipart_boxes import open_clipart_boxes
from evaluation.tasks.detection.datasets.sources import NAMES, open_boxes
from sslkit.errors import UserError

INSTANCES = Instances.from_counts(
    [2, 0, 1],
    [[0, 0, 10, 20], [5, 5, 6, 7], [1, 1, 4, 4]],
    [1, 2, 1],
    iscrowd=[False, True, False],
    difficult=[False, False, True],
)


def test_instances_are_taken_by_image() -> None:
    assert len(INSTANCES) == 3 and INSTANCES.counts.tolist() == [2, 0, 1]
    assert INSTANCES.area.tolist() == [200, 2, 9]
    taken = INSTANCES.take(np.array([2, 1, 0, 2]))
    assert taken.counts.tolist() == [1, 0, 2, 1] and taken.labels.tolist() == [1, 1, 2, 1]
    assert taken.boxes[:, 0].tolist() == [1, 0, 5, 1] and taken.difficult.tolist() == [True, False, False, True]
    none = INSTANCES.take(np.array([1]))
    assert none.boxes.shape == (0, 4) and none.boxes.dtype == np.float32 and none.ends.tolist() == [0, 0]


@pytest.mark.parametrize("rows", [[4, 0, 2], np.arange(20) % 3 == 0])
def test_a_part_of_a_set_has_the_same_images_and_targets(rows) -> None:
    whole = open_clipart_boxes("test", seed=0).take(np.arange(20))
    part = whole.take(rows)
    again = part.take(np.arange(len(part))[::-1])
    wanted = np.flatnonzero(rows) if isinstance(rows, np.ndarray) else rows
    assert len(part) == len(wanted) and part.digest != whole.digest != again.digest
    for place, row in enumerate(wanted):
        assert_same(part[place], whole[int(row)])
        assert_same(again[len(part) - 1 - place], whole[int(row)])
        assert part.ids[place] == whole.ids[row]


def assert_same(one: tuple, other: tuple) -> None:
    assert torch.equal(one[0], other[0]) and one[1].keys() == other[1].keys()
    for key, value in one[1].items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(other[1][key])), key


def test_the_target_has_what_is_promised() -> None:
    data = open_clipart_boxes("test", seed=0)
    target = data.target(-1)
    many = len(target["labels"])
    kinds = {name: value.dtype for name, value in target.items() if name != "image_id"}
    assert kinds == {
        "boxes": torch.float32,
        "labels": torch.int64,
        "iscrowd": torch.bool,
        "difficult": torch.bool,
        "area": torch.float32,
        "masks": torch.uint8,
    }
    assert target["boxes"].shape == (many, 4) and target["masks"].shape == (many, 128, 128)
    assert target["image_id"] == len(data) - 1 and "masks" not in data.without_masks().target(0)
    target["boxes"].zero_()
    assert data.target(-1)["boxes"].any()  # what is given out is a copy
    with pytest.raises(IndexError):
        data[150]


def test_training_leaves_out_crowds_and_empty_boxes_and_keeps_difficult_objects() -> None:
    boxes = torch.tensor([[-5.0, 2, 8, 9], [0, 0, 4, 4], [20, 0, 30, 4], [3, 3, 3, 8], [1, 1, 2, 2]])
    target = {
        "boxes": boxes,
        "labels": torch.arange(1, 6),
        "iscrowd": torch.tensor([False, True, False, False, False]),
        "difficult": torch.tensor([False, False, False, False, True]),
        "masks": torch.arange(5)[:, None, None].expand(5, 10, 12),
        "image_id": 4,
    }
    kept = for_training(target, height=10, width=12)
    assert kept["boxes"].tolist() == [[0, 2, 8, 9], [1, 1, 2, 2]] and kept["labels"].tolist() == [1, 5]
    assert kept["masks"][:, 0, 0].tolist() == [0, 4] and kept["image_id"] == 4
    assert target["boxes"] is boxes and boxes[0, 0] == -5


def test_a_side_that_float32_loses_in_the_mirror_is_left_out() -> None:
    thin = torch.tensor([[100.0, 5, np.nextafter(np.float32(100), np.float32(101)), 50], [100, 5, 100.02, 50]])
    flags = {name: torch.zeros(2, dtype=torch.bool) for name in ("iscrowd", "difficult")}
    target = {"boxes": thin, "labels": torch.ones(2), **flags, "image_id": 0}
    kept = for_training(target, 100, 1000)
    assert len(kept["boxes"]) == 1
    _, changed = mirror_image(torch.zeros(3, 100, 1000), kept)
    assert (changed["boxes"][:, 2:] > changed["boxes"][:, :2]).all()


def test_learnable_images_are_those_with_something_left_for_training() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 3, 40)
    corner = rng.integers(-9, 24, (counts.sum(), 2))
    boxes = np.concatenate([corner, corner + rng.integers(0, 12, corner.shape)], 1)
    instances = Instances.from_counts(counts, boxes, np.ones(len(boxes)), iscrowd=rng.random(len(boxes)) < 0.2)
    sizes = rng.integers(12, 25, (40, 2))
    data = Boxes("own", "train", ("thing",), list(map(str, range(40))), np.arange(40), sizes, instances, pixels=None)
    wanted = [len(for_training(data.target(row), *sizes[row].tolist())["boxes"]) > 0 for row in range(40)]
    assert learnable(instances, sizes).tolist() == wanted and 5 < sum(wanted) < 35


def test_a_set_goes_through_workers() -> None:
    data = open_clipart_boxes("test", seed=0).take(np.arange(6))
    loaded = list(DataLoader(data, batch_size=2, collate_fn=list, num_workers=1))
    for place, one in enumerate(one for batch in loaded for one in batch):
        assert_same(one, data[place])
    copy = pickle.loads(pickle.dumps(data))
    assert copy.digest == data.digest


def test_unknown_sources_are_said_with_what_there_is() -> None:
    for source in ("voc08", "coco", "coco:", "clipart", "voc", "clipart_boxes:x"):
        with pytest.raises(UserError, match="there is no detection set") as caught:
            open_boxes(source)
        assert all(name in str(caught.value) for name in NAMES) and "coco:FOLDER" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_open_set_is_returned_if_it_is_the_split() -> None:
    data = open_clipart_boxes("test", seed=0)
    assert open_boxes(data, "test") is data and not open_boxes(data, "test", masks=False).has_masks
    with pytest.raises(UserError, match="not 'train'"):
        open_boxes(data, "train")
