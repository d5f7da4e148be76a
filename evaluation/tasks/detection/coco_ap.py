"""COCO's average precision of boxes or masks, by torchmetrics with faster-coco-eval.

AP is the mean over categories, over IoU .50, .55, ..., .95 and over 101 recalls, of at most 100 detections an image.
It is not comparable with VOC's AP: see `evaluation.tasks.detection.voc_ap`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from sslkit.errors import UserError
from sslkit.options.members import nearest

KINDS = ("box", "mask")
_IOUS = np.linspace(0.5, 0.95, 10).tolist()
_RECALLS = np.linspace(0, 1, 101).tolist()

Detected = Mapping[str, torch.Tensor]


def coco_ap(
    predictions: Iterable[Detected], targets: Iterable[Mapping[str, Any]], kind: str = "box"
) -> dict[str, float]:
    """COCO's AP of detections: {"coco_ap", "coco_ap50", "coco_ap75"}, fractions.

    predictions: per image boxes (n, 4) xyxy, scores (n,), labels (n,) and, for kind="mask", masks (n, H, W) of
        bool or uint8. May be a generator: tensors are not kept after their image.
    targets: per image, in the same order, the result of `Boxes.target`.
    See `CocoAP` for the rules and the errors.
    """
    ap = CocoAP(kind)
    for prediction, target in zip(predictions, targets, strict=True):
        ap.update(prediction, target)
    return ap.compute()


class CocoAP:
    """COCO's AP, accumulated image by image; masks are kept as run lengths.

    Crowds match any number of detections, which are then ignored; a detection matches a crowd by the share of its own
    area inside it. Objects marked difficult (VOC) are treated in the same way, since COCO's annotation format has no
    other flag for them: unlike VOC's own rule (`evaluation.tasks.detection.voc_ap`) this also ignores a small
    false positive inside a difficult object. Categories without a counted object are left out of the mean. At most
    100 detections of an image count, those of the highest scores, as in COCO.
    Raises UserError for an unknown kind, and if torchmetrics or faster-coco-eval is not installed.
    """

    def __init__(self, kind: str = "box") -> None:
        if kind not in KINDS:
            raise UserError(f"kind={kind!r} is not an option: {nearest(kind, KINDS)}")
        self.kind = kind
        # With masks, boxes are evaluated too: given masks alone, torchmetrics drops images without a ground-truth
        # mask, and with them their false positives.
        self._metric = _torchmetrics(("bbox",) if kind == "box" else ("bbox", "segm"))
        self._counting = 0

    def update(self, prediction: Detected, target: Mapping[str, Any]) -> None:
        """Add an image. Raises UserError for tensors of inconsistent lengths, and for NaN scores."""
        _check(prediction, self.kind)
        ignored = target["iscrowd"].bool()
        if "difficult" in target:
            ignored = ignored | target["difficult"].bool()
        self._counting += int((~ignored).sum())
        truth = {"boxes": target["boxes"].double(), "labels": target["labels"], "area": target["area"]}
        truth["iscrowd"] = ignored.long()
        detected = {"boxes": prediction["boxes"].double(), "scores": prediction["scores"].double()}
        detected["labels"] = prediction["labels"]
        if self.kind == "mask":
            truth["masks"] = target["masks"].to(torch.uint8)
            detected["masks"] = prediction["masks"].to(torch.uint8)
        self._metric.update([{key: value.cpu() for key, value in detected.items()}], [truth])

    def compute(self) -> dict[str, float]:
        """{"coco_ap", "coco_ap50", "coco_ap75"}. Raises UserError if no image has a counted object."""
        if not self._counting:
            raise UserError(
                "average precision needs ground truth: no image has an object that is neither crowd nor difficult"
            )
        values = self._metric.compute()
        start = "" if self.kind == "box" else "segm_"
        return {f"coco_{short}": float(values[f"{start}{name}"]) for short, name in _NAMES}


_NAMES = (("ap", "map"), ("ap50", "map_50"), ("ap75", "map_75"))


def _torchmetrics(kinds: tuple[str, ...]) -> Any:
    """torchmetrics' metric with float64 thresholds: its float32 defaults differ from COCO's, for example .55 and .6."""
    try:
        import faster_coco_eval  # noqa: F401
        from torchmetrics.detection import MeanAveragePrecision
    except ImportError as error:
        raise UserError(
            f'average precision needs torchmetrics and faster-coco-eval ({error}): pip install -e ".[detection]"'
        ) from error
    options = {"iou_thresholds": _IOUS, "rec_thresholds": _RECALLS, "backend": "faster_coco_eval"}
    # One process has all images: under torchrun torchmetrics would wait for ranks that do not evaluate.
    metric = MeanAveragePrecision(iou_type=kinds, sync_on_compute=False, **options)
    metric.warn_on_many_detections = False
    return metric


def _check(prediction: Detected, kind: str) -> None:
    """Raises UserError for predictions not in the format of `coco_ap`."""
    wanted = ("boxes", "scores", "labels", *(("masks",) if kind == "mask" else ()))
    lacking = [name for name in wanted if name not in prediction]
    if lacking:
        raise UserError(f"a prediction of {kind} AP needs {', '.join(wanted)}; it lacks {', '.join(lacking)}")
    many = {name: len(prediction[name]) for name in wanted}
    if len(set(many.values())) > 1:
        raise UserError(f"a prediction must have the same number of each, got {many}")
    if not torch.isfinite(prediction["scores"]).all() or not torch.isfinite(prediction["boxes"]).all():
        raise UserError("a prediction has scores or boxes that are not finite: the training may have diverged")
    if kind == "mask" and (prediction["masks"].ndim != 3 or prediction["masks"].dtype.is_floating_point):
        raise UserError(
            f"predicted masks must be (n, H, W) of bool or uint8, not {tuple(prediction['masks'].shape)} of "
            f"{prediction['masks'].dtype}: threshold torchvision's (n, 1, H, W) at 0.5 first"
        )
