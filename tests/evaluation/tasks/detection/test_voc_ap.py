"""Against a plain loop over detections, in coordinates from 1 that include both ends, as VOC's files have them."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from evaluation.tasks.detection.voc_ap import voc_ap
from sslkit.errors import UserError

Row = dict[str, Any]


def loop_ap(predictions: list[Row], targets: list[Row], label: int, threshold: float, form: str) -> float | None:
    """One category's AP at one threshold; None where no object counts."""
    queue = []
    for image, found in enumerate(predictions):
        for k in range(len(found["labels"])):
            if int(found["labels"][k]) == label:
                queue.append((float(found["scores"][k]), image, [float(side) for side in found["boxes"][k]]))
    queue.sort(key=lambda one: -one[0])  # a stable sort
    counting = 0
    for target in targets:
        for k in range(len(target["labels"])):
            counting += int(target["labels"][k]) == label and not bool(target["difficult"][k])
    if counting == 0:
        return None
    taken: set[tuple[int, int]] = set()
    right = wrong = 0
    curve: list[tuple[int, Fraction]] = []
    for _, image, box in queue:
        target, best, best_iou = targets[image], -1, 0.0
        for k in range(len(target["labels"])):
            if int(target["labels"][k]) == label:
                iou = inclusive_iou(box, [float(side) for side in target["boxes"][k]])
                if iou > best_iou:
                    best, best_iou = k, iou
        if best_iou > threshold:
            if bool(target["difficult"][best]):
                pass
            elif (image, best) in taken:
                wrong += 1
            else:
                taken.add((image, best))
                right += 1
        else:
            wrong += 1
        curve.append((right, Fraction(right, max(right + wrong, 1))))
    if form == "11point":
        levels = [
            max([p for hits, p in curve if 10 * hits >= step * counting], default=Fraction(0)) for step in range(11)
        ]
        return float(sum(levels) / 11)
    area = Fraction(0)
    for hits in range(1, counting + 1):
        area += Fraction(1, counting) * max([p for reached, p in curve if reached >= hits], default=Fraction(0))
    return float(area)


def inclusive_iou(a: list[float], b: list[float]) -> float:
    """VOC's: x from 1 and both ends inside, one pixel added to each length."""
    a, b = ([box[0] + 1, box[1] + 1, box[2], box[3]] for box in (a, b))
    width = min(a[2], b[2]) - max(a[0], b[0]) + 1
    height = min(a[3], b[3]) - max(a[1], b[1]) + 1
    if width <= 0 or height <= 0:
        return 0.0
    sizes = [(box[2] - box[0] + 1) * (box[3] - box[1] + 1) for box in (a, b)]
    return width * height / (sizes[0] + sizes[1] - width * height)


def loop(predictions: list[Row], targets: list[Row], form: str) -> dict[str, float]:
    labels = sorted({int(label) for target in targets for label in target["labels"]})
    found: dict[int, float] = {}
    for percent in range(50, 100, 5):
        each = [loop_ap(predictions, targets, label, percent / 100, form) for label in labels]
        counted = [ap for ap in each if ap is not None]
        found[percent] = sum(counted) / len(counted)
    return {"voc_ap": sum(found.values()) / 10, "voc_ap50": found[50], "voc_ap75": found[75]}


def detected(boxes: Any, scores: Any, labels: Any) -> Row:
    boxes = torch.as_tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    return {"boxes": boxes, "scores": torch.tensor(scores).float(), "labels": torch.tensor(labels).long()}


def true(boxes: Any, labels: Any, difficult: Any = ()) -> Row:
    row = {"boxes": torch.as_tensor(boxes, dtype=torch.float32).reshape(-1, 4), "labels": torch.tensor(labels).long()}
    row["difficult"] = torch.zeros(len(row["labels"]), dtype=torch.bool)
    row["difficult"][list(difficult)] = True
    row["iscrowd"] = torch.zeros_like(row["difficult"])
    return row


def random_case(seed: int, images: int = 20) -> tuple[list[Row], list[Row]]:
    """Whole pixels, so that IoUs of exactly a threshold occur; scores of one decimal, so that ties do."""
    rng = np.random.default_rng(seed)

    def boxes(many: int) -> np.ndarray:
        corner = rng.integers(0, 60, (many, 2))
        return np.concatenate([corner, corner + rng.integers(2, 20, (many, 2))], 1)

    predictions, targets = [], []
    for _ in range(images):
        objects, false = int(rng.integers(0, 7)), int(rng.integers(0, 9))
        own, labels = boxes(objects), rng.integers(1, 5, objects)
        targets.append(true(own, labels.tolist(), np.flatnonzero(rng.random(objects) < 0.25)))
        repeated = np.repeat(np.arange(objects), rng.integers(0, 4, objects))
        near = own[repeated] + rng.integers(-1, 2, (len(repeated), 4))
        found = np.concatenate([near, boxes(false)])
        scores = np.round(rng.random(len(found)), 1).tolist()
        predictions.append(detected(found, scores, [*labels[repeated].tolist(), *rng.integers(1, 7, false).tolist()]))
    return predictions, targets


@pytest.mark.parametrize("form", ["11point", "area"])
@pytest.mark.parametrize("seed", range(6))
def test_random_cases_are_the_loop(seed: int, form: str) -> None:
    predictions, targets = random_case(seed)
    wanted = loop(predictions, targets, form)
    assert 0.05 < wanted["voc_ap"] < wanted["voc_ap50"] < 0.95
    assert voc_ap(predictions, targets, form) == pytest.approx(wanted, abs=1e-12)


BOX, OTHER = [10, 10, 30, 30], [50, 50, 70, 70]


@pytest.mark.parametrize("form", ["11point", "area"])
@pytest.mark.parametrize(
    ("predictions", "targets", "ap50"),
    [
        ([detected([BOX], [0.9], [1])], [true([BOX], [1])], 1.0),
        ([detected([OTHER], [0.9], [1])], [true([BOX], [1])], 0.0),
        ([detected([], [], [])], [true([BOX], [1])], 0.0),
        ([detected([BOX], [0.9], [1]), detected([], [], [])], [true([BOX], [1]), true([], [])], 1.0),
        ([detected([BOX], [0.9], [1]), detected([BOX], [0.5], [1])], [true([], []), true([BOX], [1])], 0.5),
        ([detected([OTHER, BOX], [0.9, 0.8], [1, 1])], [true([OTHER, BOX], [1, 1], difficult=[0])], 1.0),
        ([detected([BOX, BOX, OTHER], [0.9, 0.8, 0.7], [1] * 3)], [true([BOX, OTHER], [1, 1])], None),
        ([detected([BOX, OTHER], [0.9, 0.9], [1, 2])], [true([BOX, OTHER], [1, 3])], 0.5),
        ([detected([BOX, OTHER], [0.9, 0.9], [1, 2])], [true([BOX], [1])], 1.0),
    ],
)
def test_crafted_cases(predictions: list[Row], targets: list[Row], ap50: float | None, form: str) -> None:
    got = voc_ap(predictions, targets, form)
    assert got == pytest.approx(loop(predictions, targets, form), abs=1e-12)
    if ap50 is not None:
        assert got["voc_ap50"] == pytest.approx(ap50)


def test_the_two_forms_by_hand() -> None:
    """Right, wrong, right, of two objects: precision 1 to recall .5, then 2/3."""
    case = [detected([BOX, [0, 0, 5, 5], OTHER], [0.9, 0.8, 0.7], [1, 1, 1])], [true([BOX, OTHER], [1, 1])]
    assert voc_ap(*case, "11point")["voc_ap50"] == pytest.approx((6 * 1 + 5 * 2 / 3) / 11)
    assert voc_ap(*case, "area")["voc_ap50"] == pytest.approx(0.5 + 0.5 * 2 / 3)


def test_eleven_points_count_a_recall_of_exactly_three_tenths() -> None:
    boxes = [[20 * k, 0, 20 * k + 10, 10] for k in range(10)]
    case = [detected(boxes[:3], [0.9, 0.8, 0.7], [1] * 3)], [true(boxes, [1] * 10)]
    assert voc_ap(*case, "11point")["voc_ap50"] == pytest.approx(4 / 11)


def test_an_iou_of_exactly_the_threshold_is_wrong() -> None:
    assert voc_ap([detected([[0, 0, 10, 10]], [0.9], [1])], [true([[0, 0, 20, 10]], [1])])["voc_ap50"] == 0
    assert voc_ap([detected([[0, 0, 11, 10]], [0.9], [1])], [true([[0, 0, 20, 10]], [1])])["voc_ap50"] == 1


def test_a_second_detection_does_not_go_to_the_second_best_object() -> None:
    """Both go to the object that they overlap most, though the other would do for one: VOC's rule, not COCO's."""
    objects = [[0, 0, 20, 20], [0, 4, 20, 24]]
    case = [detected([[0, 0, 20, 20], [0, 1, 20, 21]], [0.9, 0.8], [1, 1])], [true(objects, [1, 1])]
    assert voc_ap(*case)["voc_ap50"] == pytest.approx(0.5)


def test_equal_scores_keep_the_order_of_images() -> None:
    first = [detected([BOX], [0.5], [1]), detected([OTHER], [0.5], [1])]
    assert voc_ap(first, [true([BOX], [1]), true([BOX], [1])])["voc_ap50"] == pytest.approx(0.5)
    assert voc_ap(first[::-1], [true([BOX], [1]), true([BOX], [1])])["voc_ap50"] == pytest.approx(0.25)


def test_bad_input_is_said() -> None:
    with pytest.raises(UserError, match="known: 11point, area"):
        voc_ap([], [], "11")
    with pytest.raises(UserError, match="got 0"):
        voc_ap([], [])
    with pytest.raises(UserError, match="needs ground truth"):
        voc_ap([detected([BOX], [0.9], [1])], [true([BOX], [1], difficult=[0])])
    with pytest.raises(UserError, match="not finite"):
        voc_ap([detected([BOX], [float("nan")], [1])], [true([BOX], [1])])
    with pytest.raises(ValueError):
        voc_ap([detected([BOX], [0.9], [1])], [])
