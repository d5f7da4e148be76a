"""Schedules: the published numbers, and what is marked as not comparable."""

from dataclasses import replace

import pytest
from detectors import images, narrow

import sslkit
from evaluation.tasks.detection.datasets.boxes import Boxes
from evaluation.tasks.detection.datasets.clipart_boxes import open_clipart_boxes
from evaluation.tasks.detection.results import comparable, describe
from evaluation.tasks.detection.schedules import NAMES, find_schedule
from evaluation.tasks.detection.training import Training
from sslkit.errors import UserError


def whole() -> Boxes:
    return open_clipart_boxes("test", seed=0)


def test_full_is_what_moco_published() -> None:
    voc = find_schedule("full", "voc0712")
    assert (voc.steps, voc.drops, voc.warmup, voc.batch_size, voc.lr) == (24000, (18000, 22000), 100, 16, 0.02)
    assert voc.sizes.sides == (480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800)
    assert (voc.sizes.candidates[1], voc.sizes.proposals[1]) == (6000, 1000)
    sizes = voc.sizes
    assert (sizes.anchors, sizes.longest, sizes.rois) == ((32, 64, 128, 256, 512), 1333, 512)
    assert (sizes.candidates, sizes.level_candidates, sizes.proposals) == ((12000, 6000), (2000, 1000), (2000, 1000))
    assert voc.precise == 200 and voc.weight_decay == 1e-4
    short = find_schedule("full", "voc07")
    assert (short.steps, short.drops) == (9000, (6750, 8250))
    coco = find_schedule("full", "coco2017")
    assert (coco.steps, coco.drops) == (90000, (60000, 80000)) and coco.sizes.sides[0] == 640
    assert find_schedule("full_2x", "coco2017").drops == (120000, 160000)


def test_the_rate_rises_and_falls_by_tens() -> None:
    voc = find_schedule("full", "voc0712")
    factors = [voc.factor(step) for step in (0, 50, 100, 17999, 18000, 22000, 23999)]
    assert factors == pytest.approx([0.001, 0.5005, 1, 1, 0.1, 0.01, 0.01])


@pytest.fixture(scope="module")
def resnet50():
    return sslkit.load("random:resnet50", image_size=224)


@pytest.mark.parametrize("data", ["voc07", "clipart_boxes", "coco2017"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "full_2x"])
def test_only_full_on_a_published_set_is_comparable(name: str, data: str, resnet50) -> None:
    schedule = find_schedule(name, data)
    sets = resnet50, whole(), whole()
    training = Training(schedule, masks=schedule.masks)
    assert comparable(training, *sets) == (name == "full" and data != "clipart_boxes")
    assert ("not comparable" in describe(training, *sets)) != comparable(training, *sets)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tune": "none"}, "C4 Mask R-CNN, frozen backbone, schedule full, not comparable"),
        ({"precision": "bfloat16"}, "C4 Mask R-CNN, schedule full, bfloat16, not comparable"),
        ({"masks": False}, "C4 Faster R-CNN, schedule full, not comparable"),
        ({"arch": "fpn"}, "FPN Mask R-CNN, schedule full, not comparable"),
    ],
)
def test_another_way_of_training_is_not_comparable(changes: dict, said: str, resnet50) -> None:
    training = replace(Training(find_schedule("full", "coco2017"), masks=True), **changes)
    assert not comparable(training, resnet50, whole(), whole())
    assert describe(training, resnet50, whole(), whole()).startswith(said)


def test_another_network_and_a_part_of_a_set_are_not_comparable(resnet50) -> None:
    training = Training(find_schedule("full", "voc07"))
    assert describe(training, resnet50, whole(), whole()).endswith("as MoCo's 9,000 steps on VOC 07, drops assumed")
    assert not comparable(training, narrow(), whole(), whole())
    gray = sslkit.load("random:resnet50", image_size=224, in_chans=1)
    assert not comparable(training, gray, whole(), whole())
    for sets in ((images(4), whole()), (whole(), images(4))):
        assert not comparable(training, resnet50, *sets)


def test_changes_are_in_proportion_and_marked() -> None:
    changed = find_schedule("full", "voc07").change(900, 8, None)
    assert changed.drops == (675, 825) and changed.lr == pytest.approx(0.01) and not changed.published
    assert changed.name == "full, 900 steps"
    assert find_schedule("full", "voc07").change(None, None, 0.1).name == "full, changed"
    assert find_schedule("short", "voc07").steps == 900
    short = find_schedule("short", "coco2017")
    assert (short.steps, short.warmup) == (9000, 1000), "the warm-up stays as long"
    assert find_schedule("full", "coco2017").change(100, None, None).warmup == 50


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: find_schedule("smok", "voc07"), "did you mean 'smoke'"),
        (lambda: find_schedule("full_2x", "voc07"), "schedule=full_2x is for coco2017 only"),
        (
            lambda: find_schedule("full", "voc07").change(0, None, None),
            "steps must be a whole number, at least 1, got 0",
        ),
        (
            lambda: find_schedule("full", "voc07").change(None, None, float("inf")),
            "lr must be a number above 0, got inf",
        ),
        (lambda: Training(find_schedule("full", "voc07"), precision="half"), "no precision 'half'"),
    ],
)
def test_what_is_out_of_range_is_refused(call, said: str) -> None:
    with pytest.raises(UserError, match=said):
        call()
