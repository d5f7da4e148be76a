"""Schedules: the published numbers, and what is marked as not comparable."""

import pytest

from evaluation.detection.results import comparable, described
from evaluation.detection.schedules import NAMES, find_schedule
from evaluation.detection.training import Training
from sslkit.errors import UserError


def test_full_is_what_moco_published() -> None:
    voc = find_schedule("full", "voc0712")
    assert (voc.steps, voc.drops, voc.warmup, voc.batch_size, voc.lr) == (24000, (18000, 22000), 100, 16, 0.02)
    assert voc.sizes.sides == (480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800)
    assert (voc.sizes.candidates[1], voc.sizes.proposals[1]) == (6000, 1000)
    assert find_schedule("full", "voc07").steps == 9000
    coco = find_schedule("full", "coco2017")
    assert (coco.steps, coco.drops) == (90000, (60000, 80000)) and coco.sizes.sides[0] == 640
    assert find_schedule("full_2x", "coco2017").drops == (120000, 160000)


def test_the_rate_rises_and_falls_by_tens() -> None:
    voc = find_schedule("full", "voc0712")
    factors = [voc.factor(step) for step in (0, 50, 100, 17999, 18000, 22000, 23999)]
    assert factors == pytest.approx([0.001, 0.5005, 1, 1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize("data", ["voc07", "clipart_boxes", "coco2017"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "full_2x"])
def test_only_full_on_a_published_set_is_comparable(name: str, data: str) -> None:
    training = Training(find_schedule(name, data))
    assert comparable(training) == (name == "full" and data != "clipart_boxes")
    assert ("not comparable" in described(training)) != comparable(training)


def test_changes_are_in_proportion_and_marked() -> None:
    changed = find_schedule("full", "voc07").changed(steps=900, batch_size=8)
    assert changed.drops == (675, 825) and changed.lr == pytest.approx(0.01) and not changed.published
    assert changed.name == "full, 900 steps"
    assert find_schedule("full", "voc07").changed(lr=0.1).name == "full, changed"
    assert find_schedule("short", "voc07").steps == 900
    frozen = Training(find_schedule("full", "voc07"), trainable="frozen")
    assert not comparable(frozen) and "frozen backbone" in described(frozen)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: find_schedule("smok", "voc07"), "did you mean 'smoke'"),
        (lambda: find_schedule("full_2x", "voc07"), "is COCO's"),
        (lambda: find_schedule("full", "voc07").changed(steps=0), "steps=0 must be"),
        (lambda: find_schedule("full", "voc07").changed(lr=float("inf")), "lr=inf must be"),
        (lambda: Training(find_schedule("full", "voc07"), precision="half"), "no precision 'half'"),
    ],
)
def test_what_is_out_of_range_is_refused(call, said: str) -> None:
    with pytest.raises(UserError, match=said):
        call()
