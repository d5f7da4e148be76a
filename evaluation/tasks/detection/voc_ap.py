"""PASCAL VOC's average precision by its own rule (Everingham et al. 2010, section 4.2).

Each detection, in the order of scores, is assigned to the object of its category and image with the largest IoU. It
is a true positive if their IoU is above the threshold and no earlier detection matched the object, and is ignored if
the object is marked difficult. Not comparable with COCO's AP: see `evaluation.tasks.detection.coco_ap`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from sslkit.errors import UserError
from sslkit.options.members import nearest

FORMS = ("11point", "area")
IOUS = np.arange(50, 100, 5) / 100

Detected = Mapping[str, torch.Tensor]


def voc_ap(
    predictions: Iterable[Detected], targets: Iterable[Mapping[str, Any]], form: str = "area"
) -> dict[str, float]:
    """VOC's AP of detections, means over the categories: {"voc_ap", "voc_ap50", "voc_ap75"}, fractions.

    predictions: per image boxes (n, 4) xyxy, scores (n,), labels (n,). targets: the results of `Boxes.target` of the
        same images in the same order.
    form: "11point", the mean of the precisions at recall 0, .1, ..., 1 (VOC 2007 to 2009; papers report it on the
        test set of VOC 2007), or "area" under the monotone precision curve (VOC 2010 to 2012).
    voc_ap is the mean over IoU .50, .55, ..., .95, as in Detectron2's VOC evaluator.

    IoU is VOC's, which counts whole pixels: xmax - xmin + 1 for coordinates that include both ends. The boxes here are
    half open, so their xmax - xmin is the same number and nothing is added. As in Detectron2, IoU must be above the
    threshold (the first development kit accepts equality). Equal scores keep the order of the images, and within an
    image that of the detections. Categories without a counted object are left out of the means. COCO's crowds, which
    VOC does not define, are treated as difficult.
    Raises UserError for an unknown form, scores or boxes that are not finite, and if no object counts.
    """
    if form not in FORMS:
        raise UserError(f"form={form!r} is not an option: {nearest(form, FORMS)}")
    detections, truth = _flat(predictions, targets)
    categories = np.unique(truth["labels"][~truth["ignored"]])
    if not len(categories):
        raise UserError(
            "average precision needs ground truth: no image has an object that is neither crowd nor difficult"
        )
    order = np.argsort(-detections["scores"], kind="stable")
    detections = {name: values[order] for name, values in detections.items()}
    ap = np.array(
        [_category_ap(_of_category(detections, label), _of_category(truth, label), form) for label in categories]
    )
    return {
        "voc_ap": float(ap.mean()),
        "voc_ap50": float(ap[:, 0].mean()),
        "voc_ap75": float(ap[:, 5].mean()),
    }


def _flat(predictions: Iterable[Detected], targets: Iterable[Mapping[str, Any]]) -> tuple[dict[str, np.ndarray], ...]:
    """Concatenate all detections and all objects, each with the index of its image."""
    detections: dict[str, list[np.ndarray]] = {"image": [], "labels": [], "boxes": [], "scores": []}
    truth: dict[str, list[np.ndarray]] = {"image": [], "labels": [], "boxes": [], "ignored": []}
    for row, (prediction, target) in enumerate(zip(predictions, targets, strict=True)):
        ignored = target["difficult"].bool() | target["iscrowd"].bool() if "iscrowd" in target else target["difficult"]
        for store, values in ((detections, prediction), (truth, {**target, "ignored": ignored})):
            store["image"].append(np.full(len(values["labels"]), row))
            for name in list(store)[1:]:
                store[name].append(values[name].detach().cpu().numpy())
    if not detections["image"]:
        raise UserError("average precision needs at least one image, got 0")
    joined = [{name: np.concatenate(parts) for name, parts in store.items()} for store in (detections, truth)]
    for store in joined:
        store["boxes"] = store["boxes"].astype(np.float64).reshape(-1, 4)
    if not np.isfinite(joined[0]["scores"]).all() or not np.isfinite(joined[0]["boxes"]).all():
        raise UserError("a prediction has scores or boxes that are not finite: the training may have diverged")
    joined[1]["ignored"] = joined[1]["ignored"].astype(bool)
    return joined[0], joined[1]


def _of_category(rows: dict[str, np.ndarray], label: int) -> dict[str, np.ndarray]:
    mask = rows["labels"] == label
    return {name: values[mask] for name, values in rows.items()}


def _category_ap(found: dict[str, np.ndarray], truth: dict[str, np.ndarray], form: str) -> np.ndarray:
    """(10,) AP of one category at each of IOUS; detections are sorted by score."""
    counting = int((~truth["ignored"]).sum())
    best, iou = _best(found, truth)
    ap = np.zeros(len(IOUS))
    for k, threshold in enumerate(IOUS):
        over = iou > threshold
        first = np.zeros(len(best), bool)
        rows = np.flatnonzero(over)
        first[rows[np.unique(best[rows], return_index=True)[1]]] = True
        ignored = over & np.append(truth["ignored"], False)[best]
        right = np.cumsum(first & ~ignored)
        wrong = np.cumsum(~first & ~ignored)
        precision = right / np.maximum(right + wrong, 1)
        ap[k] = (_eleven if form == "11point" else _area)(right, precision, counting)
    return ap


def _best(found: dict[str, np.ndarray], truth: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The object of the same image with the largest IoU, the first of equal ones, for each of n detections; that IoU.

    Both (n,); -1 (the last) and 0 if the image has no object. Objects are sorted by image.
    """
    first = np.searchsorted(truth["image"], found["image"], "left")
    many = np.searchsorted(truth["image"], found["image"], "right") - first
    best, iou = np.full(len(first), -1), np.zeros(len(first))
    rows = np.flatnonzero(many)
    if not len(rows):
        return best, iou
    starts = np.cumsum(many[rows]) - many[rows]
    detection = np.repeat(rows, many[rows])
    objects = np.arange(len(detection)) - np.repeat(starts - first[rows], many[rows])
    ious = _iou(found["boxes"][detection], truth["boxes"][objects])
    iou[rows] = np.maximum.reduceat(ious, starts)
    top = np.where(ious == iou[detection], objects, len(truth["image"]))
    best[rows] = np.minimum.reduceat(top, starts)
    return best, iou


def _iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(n,) IoU of the pairs of (n, 4) half-open boxes."""
    sides = (np.minimum(a[:, 2:], b[:, 2:]) - np.maximum(a[:, :2], b[:, :2])).clip(0)
    shared = sides.prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def _eleven(right: np.ndarray, precision: np.ndarray, counting: int) -> float:
    """Mean of the best precision at recall 0, .1, ..., 1; compared as integers, since 3 * .1 > .3 in floats."""
    return float(np.mean([precision[10 * right >= level * counting].max(initial=0) for level in range(11)]))


def _area(right: np.ndarray, precision: np.ndarray, counting: int) -> float:
    """Area under the precision that is the largest at this and all higher recalls."""
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float((np.diff(right, prepend=0) * envelope).sum() / counting)
