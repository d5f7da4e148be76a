"""Training images step by step: resumed, shared by ranks, mirrored."""

import numpy as np
import pytest
import torch
from detectors import images

from evaluation.tasks.detection.batches import StepBatches, group_by_shape, mirror_image, training_batches
from evaluation.tasks.detection.datasets.boxes import for_training
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime

CPU = Runtime(device=torch.device("cpu"))


def lying(n: int) -> np.ndarray:
    return np.zeros(n, bool)


def test_a_run_from_the_middle_sees_what_the_whole_run_saw() -> None:
    whole = list(StepBatches(lying(10), 4, 3, 0, 9, 0, 1))
    assert list(StepBatches(lying(10), 4, 3, 5, 9, 0, 1)) == whole[5:]
    assert len(whole) == 9 and len({*whole[0], *whole[1]}) == 8, "two batches an epoch, no image twice"
    assert whole[:2] != whole[2:4]


def test_ranks_share_the_batches_of_one() -> None:
    whole = list(StepBatches(lying(12), 4, 0, 0, 6, 0, 1))
    parts = [list(StepBatches(lying(12), 4, 0, 0, 6, rank, 2)) for rank in (0, 1)]
    assert [sorted(a + b) for a, b in zip(*parts, strict=True)] == [sorted(rows) for rows in whole]


@pytest.mark.parametrize("n", [40, 41, 47])
@pytest.mark.parametrize("world", [1, 2])
def test_images_of_a_rank_and_step_are_of_one_kind(n: int, world: int) -> None:
    upright = np.random.default_rng(n).random(n) < 0.3
    parts = [list(StepBatches(upright, 8, 0, 0, 10, rank, world)) for rank in range(world)]
    for epoch in (range(5), range(5, 10)):
        used = [tuple(rows) for part in parts for step, rows in enumerate(part) if step in epoch]
        assert all(len(rows) == 8 // world for rows in used)
        assert len({row for rows in used for row in rows}) == 40, "no image twice in an epoch"
        assert sum(0 < upright[list(rows)].sum() < len(rows) for rows in used) <= 1, "one mixed group, of what is left"
    again = list(StepBatches(upright, 8, 0, 7, 10, 0, world))
    assert again == parts[0][7:]


def test_groups_come_in_the_order_in_which_they_are_full() -> None:
    upright = np.array([False, True, False, True, False, True, True])
    found = group_by_shape(np.array([0, 1, 2, 3, 5, 6]), upright, 2)
    assert [group.tolist() for group in found] == [[0, 2], [1, 3], [5, 6]]
    assert [group.tolist() for group in group_by_shape(np.array([4, 1, 0, 3, 6, 2]), upright, 2)] == [
        [4, 0],
        [1, 3],
        [2, 6],
    ]


@pytest.mark.parametrize(("n", "upright", "batch", "world"), [(110, 10, 16, 1), (103, 3, 16, 4), (33, 1, 8, 8)])
def test_images_of_a_rare_kind_are_seen_as_often_as_others(n: int, upright: int, batch: int, world: int) -> None:
    kinds, steps = np.arange(n) < upright, 100 * (n // batch)
    seen = [
        row for rank in range(world) for rows in StepBatches(kinds, batch, 0, 0, steps, rank, world) for row in rows
    ]
    often = np.bincount(seen, minlength=n) / 100
    assert often.min() > 0.7 and abs(often[:upright].mean() - often[upright:].mean()) < 0.1


@pytest.mark.parametrize("row", range(4))
def test_a_mirrored_mask_lies_in_its_mirrored_box(row: int) -> None:
    image, target = images(4)[row]
    target = for_training(target, *image.shape[-2:])
    flipped, changed = mirror_image(image, target)
    assert torch.equal(flipped, image.flip(-1))
    for mask, box in zip(changed["masks"].numpy(), changed["boxes"].tolist(), strict=True):
        y, x = np.nonzero(mask)
        assert box == [x.min(), y.min(), x.max() + 1, y.max() + 1]
    again = mirror_image(flipped, changed)[1]
    assert torch.equal(again["boxes"], target["boxes"]) and torch.equal(again["masks"], target["masks"])


HOW = {"batch_size": 2, "seed": 1, "last": 8}


def test_batches_are_the_same_from_any_step() -> None:
    whole = list(training_batches(images(), 3, CPU, first=0, **HOW))
    later = list(training_batches(images(), 3, CPU, first=6, **HOW))
    for (a, s), (b, t) in zip(whole[6:], later, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
        assert all(torch.equal(x["boxes"], y["boxes"]) for x, y in zip(s, t, strict=True))


def test_some_images_are_mirrored_with_their_boxes() -> None:
    plain = [(image / 255, target["boxes"]) for image, target in images()]
    kinds = []
    for batch in training_batches(images(), 3, CPU, first=0, **HOW):
        for image, target in zip(*batch, strict=True):
            same, turned = (
                [torch.equal(image, x) for x in ((p.flip(-1) if flip else p) for p, _ in plain)] for flip in (0, 1)
            )
            kinds.append(any(turned))
            x0, y0, x1, y1 = plain[(turned if kinds[-1] else same).index(True)][1].unbind(1)
            expected = [128 - x1, y0, 128 - x0, y1] if kinds[-1] else [x0, y0, x1, y1]
            assert torch.equal(target["boxes"], torch.stack(expected, 1))
    assert 0 < sum(kinds) < len(kinds) == 16
    assert len({tuple(kinds[i : i + 2]) for i in range(0, 16, 2)}) > 1, "not all steps alike"


def test_images_without_objects_are_left_out() -> None:
    data = images(4)
    crowd = data.instances.iscrowd.copy()
    crowd[data.instances.ends[1] : data.instances.ends[2]] = True
    from dataclasses import replace

    left = replace(data, instances=replace(data.instances, iscrowd=crowd)).to_learn_from("skip")
    assert left.whole == data.whole
    assert list(left.ids) == [data.ids[row] for row in (0, 2, 3)]
    with pytest.raises(UserError, match="has no object to train on"):
        replace(data, instances=replace(data.instances, iscrowd=np.ones_like(crowd))).to_learn_from("skip")


def test_too_few_images_are_refused() -> None:
    with pytest.raises(UserError, match="must be at most 3, the number of training images"):
        StepBatches(lying(3), 4, 0, 0, 1, 0, 1)
    with pytest.raises(UserError, match="multiple of the number of processes, 2"):
        StepBatches(lying(9), 3, 0, 0, 1, 0, 2)
