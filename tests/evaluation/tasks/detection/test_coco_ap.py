"""Against pycocotools, which is given the same boxes by code of its own."""

import contextlib
import io
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("torchmetrics")
pytest.importorskip("faster_coco_eval")

from evaluation.tasks.detection.coco_ap import CocoAP, coco_ap
from sslkit.errors import UserError

SIZE = 96
Case = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def oracle(predictions: list[dict[str, Any]], targets: list[dict[str, Any]], kind: str) -> dict[str, float]:
    """pycocotools' AP; difficult objects are crowds."""
    coco_module = pytest.importorskip("pycocotools.coco")
    from pycocotools import mask as mask_functions
    from pycocotools.cocoeval import COCOeval

    def entry(image: int, row: dict[str, Any], k: int) -> dict[str, Any]:
        x0, y0, x1, y1 = map(float, row["boxes"][k])
        own = {"image_id": image + 7, "category_id": int(row["labels"][k]) * 3, "bbox": [x0, y0, x1 - x0, y1 - y0]}
        if kind == "mask":
            own["segmentation"] = mask_functions.encode(np.asfortranarray(row["masks"][k].numpy().astype(np.uint8)))
        return own

    labels = {int(label) for row in (*predictions, *targets) for label in row["labels"]}
    truth: dict[str, Any] = {"info": {}, "images": [], "annotations": []}
    truth["categories"] = [{"id": 3 * label, "name": str(label)} for label in sorted(labels)]
    results = []
    for image, (found, target) in enumerate(zip(predictions, targets, strict=True)):
        truth["images"].append({"id": image + 7, "height": SIZE, "width": SIZE})
        for k in range(len(target["labels"])):
            crowd = bool(target["iscrowd"][k]) or bool(target["difficult"][k])
            extra = {"id": len(truth["annotations"]) + 1, "iscrowd": int(crowd), "area": float(target["area"][k])}
            truth["annotations"].append({**entry(image, target, k), **extra})
        results += [{**entry(image, found, k), "score": float(found["scores"][k])} for k in range(len(found["labels"]))]
    with contextlib.redirect_stdout(io.StringIO()):
        coco = coco_module.COCO()
        coco.dataset = truth
        coco.createIndex()
        judged = COCOeval(coco, coco.loadRes(results), "bbox" if kind == "box" else "segm")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return dict(zip(("coco_ap", "coco_ap50", "coco_ap75"), judged.stats[:3].tolist(), strict=True))


def with_masks(row: dict[str, Any]) -> dict[str, Any]:
    """Masks: the box without its lower right quarter, so that masks overlap otherwise than boxes."""
    masks = torch.zeros(len(row["boxes"]), SIZE, SIZE, dtype=torch.uint8)
    for mask, (x0, y0, x1, y1) in zip(masks, row["boxes"].round().int().tolist(), strict=True):
        mask[max(y0, 0) : y1, max(x0, 0) : x1] = 1
        mask[(y0 + y1) // 2 : y1, (x0 + x1) // 2 : x1] = 0
    return {**row, "masks": masks}


def detected(boxes: Any, scores: Any, labels: Any) -> dict[str, Any]:
    boxes = torch.as_tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    return with_masks({"boxes": boxes, "scores": torch.tensor(scores).float(), "labels": torch.tensor(labels).long()})


def true(boxes: Any, labels: Any, crowd: Any = (), difficult: Any = ()) -> dict[str, Any]:
    boxes = torch.as_tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    row = {"boxes": boxes, "labels": torch.tensor(labels).long(), "area": area}
    for name, which in (("iscrowd", crowd), ("difficult", difficult)):
        row[name] = torch.zeros(len(boxes), dtype=torch.bool)
        row[name][list(which)] = True
    return with_masks(row)


def random_case(seed: int, images: int = 12, most: int = 9, extra: int = 12) -> Case:
    """Images with noisy detections of their objects and false ones; some are empty, some objects are crowds."""
    rng = np.random.default_rng(seed)

    def boxes(many: int) -> np.ndarray:
        corner = rng.uniform(0, SIZE - 40, (many, 2))
        return np.concatenate([corner, corner + rng.uniform(4, 40, (many, 2))], 1)

    predictions, targets = [], []
    for _ in range(images):
        objects, false = int(rng.integers(0, most)), int(rng.integers(0, extra))
        own, labels = boxes(objects), rng.integers(1, 5, objects)
        special = rng.random(objects)
        targets.append(true(own, labels.tolist(), np.flatnonzero(special < 0.2), np.flatnonzero(special > 0.9)))
        repeated = np.repeat(np.arange(objects), rng.integers(0, 3, objects))
        near = (own[repeated] + rng.normal(0, 1.5, (len(repeated), 4))).clip(0, SIZE)
        scores = np.round(rng.random(len(repeated) + false), 1)  # many ties
        found = np.concatenate([near, boxes(false)])
        predictions.append(
            detected(found, scores.tolist(), [*labels[repeated].tolist(), *rng.integers(1, 5, false).tolist()])
        )
    return predictions, targets


BOX, OTHER = [10, 10, 40, 50], [50, 50, 90, 80]
NONE, NOTHING = detected([], [], []), true([], [])
CASES: dict[str, Case] = {
    "right": ([detected([BOX], [0.9], [1])], [true([BOX], [1])]),
    "image without truth": ([detected([BOX], [0.9], [1]), detected([BOX], [0.5], [1])], [NOTHING, true([BOX], [1])]),
    "image without prediction": ([NONE, detected([BOX], [0.5], [1])], [true([OTHER], [1]), true([BOX], [1])]),
    "empty image": ([NONE, detected([BOX], [0.5], [1])], [NOTHING, true([BOX], [1])]),
    "category never found": ([detected([BOX], [0.9], [1])], [true([BOX, OTHER], [1, 2])]),
    "category that is nowhere": ([detected([BOX, OTHER], [0.9, 0.8], [1, 2])], [true([BOX], [1])]),
    "crowd takes up many": (
        [detected([[50, 50, 60, 60], [60, 60, 70, 70], BOX], [0.9, 0.8, 0.7], [1, 1, 1])],
        [true([OTHER, BOX], [1, 1], crowd=[0])],
    ),
    "difficult": ([detected([OTHER, BOX], [0.9, 0.7], [1, 1])], [true([OTHER, BOX], [1, 1], difficult=[0])]),
    "found twice": ([detected([BOX, BOX], [0.9, 0.8], [1, 1])], [true([BOX, OTHER], [1, 1])]),
    "equal scores": (
        [detected([BOX], [0.5], [1]), detected([OTHER], [0.5], [1])],
        [true([BOX], [1]), true([BOX], [1])],
    ),
    "IoU of exactly .55": ([detected([[0, 0, 11, 10]], [0.9], [1])], [true([[0, 0, 20, 10]], [1])]),
    "IoU of exactly .6": ([detected([[0, 0, 12, 10]], [0.9], [1])], [true([[0, 0, 20, 10]], [1])]),
}


@pytest.mark.parametrize("kind", ["box", "mask"])
@pytest.mark.parametrize("name", CASES)
def test_crafted_cases_are_pycocotools(name: str, kind: str) -> None:
    predictions, targets = CASES[name]
    assert coco_ap(predictions, targets, kind) == pytest.approx(oracle(predictions, targets, kind), abs=1e-6)


@pytest.mark.parametrize("kind", ["box", "mask"])
@pytest.mark.parametrize("seed", range(4))
def test_random_cases_are_pycocotools(seed: int, kind: str) -> None:
    predictions, targets = random_case(seed)
    wanted = oracle(predictions, targets, kind)
    assert 0.02 < wanted["coco_ap"] < 0.98
    assert coco_ap(predictions, targets, kind) == pytest.approx(wanted, abs=1e-6)


def test_of_many_detections_the_best_hundred_of_an_image_count() -> None:
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 50, (150, 2))
    many = detected(np.concatenate([corner, corner + 30], 1), rng.random(150).tolist(), [1] * 150)
    target = true(many["boxes"][:30], [1] * 30)
    got = coco_ap([many], [target])
    assert got == pytest.approx(oracle([many], [target], "box"), abs=1e-6)
    best = many["scores"].argsort(descending=True)[:100]
    cut = {key: value[best] for key, value in many.items()}
    assert got == pytest.approx(coco_ap([cut], [target]), abs=1e-6) and got["coco_ap"] > 0


def test_false_detections_in_images_without_truth_count_against_masks() -> None:
    right, wrong = detected([BOX], [0.5], [1]), detected([BOX], [0.9], [1])
    assert coco_ap([right], [true([BOX], [1])], "mask")["coco_ap"] == pytest.approx(1, abs=1e-6)
    assert coco_ap([right, wrong], [true([BOX], [1]), NOTHING], "mask")["coco_ap"] == pytest.approx(0.5, abs=1e-6)


def test_masks_are_judged_by_their_pixels_and_boxes_by_theirs() -> None:
    found, target = detected([BOX], [0.9], [1]), true([BOX], [1])
    found["masks"] = torch.zeros_like(found["masks"])
    found["masks"][0, 90:, 90:] = 1
    assert coco_ap([found], [target], "mask")["coco_ap"] == 0
    assert coco_ap([found], [target], "box")["coco_ap"] == pytest.approx(1, abs=1e-6)


def test_generators_are_taken_in_image_by_image() -> None:
    predictions, targets = random_case(1)
    streamed = coco_ap((row for row in predictions), (row for row in targets), "mask")
    assert streamed == coco_ap(predictions, targets, "mask")


def test_lists_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError):
        coco_ap([NONE, NONE], [NOTHING])


@pytest.mark.parametrize("targets", [[NOTHING], [true([BOX], [1], crowd=[0])], [true([BOX], [1], difficult=[0])]])
def test_no_object_that_counts_is_an_error_and_no_number(targets: list[dict[str, Any]]) -> None:
    with pytest.raises(UserError, match="needs ground truth"):
        coco_ap([detected([BOX], [0.9], [1])], targets)


def test_bad_predictions_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    target, good = true([BOX], [1]), detected([BOX], [0.9], [1])
    for change, message in (
        ({"scores": torch.tensor([float("nan")])}, "not finite"),
        ({"labels": torch.tensor([1, 1])}, "same number of each"),
        ({"masks": torch.rand(1, 1, SIZE, SIZE)}, "threshold torchvision's"),
    ):
        with pytest.raises(UserError, match=message):
            CocoAP("mask").update({**good, **change}, target)
    with pytest.raises(UserError, match="it lacks masks"):
        CocoAP("mask").update({key: value for key, value in good.items() if key != "masks"}, target)
    with pytest.raises(UserError, match="did you mean 'mask'"):
        CocoAP("masks")
    monkeypatch.setitem(__import__("sys").modules, "faster_coco_eval", None)
    with pytest.raises(UserError, match=r'pip install -e "\.\[detection\]"'):
        CocoAP()
