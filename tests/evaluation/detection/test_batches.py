"""Training images step by step: resumed, shared by ranks, mirrored."""

import numpy as np
import pytest
import torch
from detectors import images

from evaluation.detection.batches import StepBatches, mirrored, training_batches, training_rows
from evaluation.detection.boxes import for_training
from sslkit.errors import UserError

CPU = torch.device("cpu")


def test_a_run_from_the_middle_sees_what_the_whole_run_saw() -> None:
    whole = list(StepBatches(10, 4, 3, 0, 9, 0, 1))
    assert list(StepBatches(10, 4, 3, 5, 9, 0, 1)) == whole[5:]
    assert len(whole) == 9 and len({*whole[0], *whole[1]}) == 8, "two batches an epoch, no image twice"
    assert whole[:2] != whole[2:4]


def test_ranks_share_the_batches_of_one() -> None:
    whole = list(StepBatches(12, 4, 0, 0, 6, 0, 1))
    parts = [list(StepBatches(12, 4, 0, 0, 6, rank, 2)) for rank in (0, 1)]
    assert [sorted(a + b) for a, b in zip(*parts, strict=True)] == [sorted(rows) for rows in whole]


@pytest.mark.parametrize("row", range(4))
def test_a_mirrored_mask_lies_in_its_mirrored_box(row: int) -> None:
    image, target = images(4)[row]
    target = for_training(target, *image.shape[-2:])
    flipped, changed = mirrored(image, target)
    assert torch.equal(flipped, image.flip(-1))
    for mask, box in zip(changed["masks"].numpy(), changed["boxes"].tolist(), strict=True):
        y, x = np.nonzero(mask)
        assert box == [x.min(), y.min(), x.max() + 1, y.max() + 1]
    again = mirrored(flipped, changed)[1]
    assert torch.equal(again["boxes"], target["boxes"]) and torch.equal(again["masks"], target["masks"])


def test_batches_are_the_same_from_any_step_and_some_images_are_mirrored() -> None:
    how = {"batch_size": 2, "seed": 1, "last": 8}
    whole = list(training_batches(images(), 3, CPU, first=0, **how))
    later = list(training_batches(images(), 3, CPU, first=6, **how))
    for (a, s), (b, t) in zip(whole[6:], later, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
        assert all(torch.equal(x["boxes"], y["boxes"]) for x, y in zip(s, t, strict=True))
    plain = [images()[row][0] / 255 for row in range(8)]
    seen = [image for batch, _ in whole for image in batch]
    as_they_are = sum(any(torch.equal(image, one) for one in plain) for image in seen)
    assert 0 < as_they_are < len(seen) == 16


def test_images_without_objects_are_left_out() -> None:
    data = images(4)
    crowd = data.instances.iscrowd.copy()
    crowd[data.instances.ends[1] : data.instances.ends[2]] = True
    from dataclasses import replace

    left = training_rows(replace(data, instances=replace(data.instances, iscrowd=crowd)))
    assert list(left.ids) == [data.ids[row] for row in (0, 2, 3)]
    with pytest.raises(UserError, match="no image with an object"):
        training_rows(replace(data, instances=replace(data.instances, iscrowd=np.ones_like(crowd))))


def test_too_few_images_are_refused() -> None:
    with pytest.raises(UserError, match="only 3 training images"):
        StepBatches(3, 4, 0, 0, 1, 0, 1)
    with pytest.raises(UserError, match="multiple of the number of processes, 2"):
        StepBatches(9, 3, 0, 0, 1, 0, 2)
