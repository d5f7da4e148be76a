"""The objects of a detection set: the rows that have a box, for the metrics of detection."""

from torch import Tensor

from evaluation.transferability.base import Sample
from sslkit.errors import UserError


def objects_of(sample: Sample, metric: str) -> Sample:
    """Return the rows that have a box. Raises UserError if the metric cannot tell their classes or places apart."""
    rows = sample.boxes.isfinite().all(1).nonzero()[:, 0]
    objects = sample.take(rows)
    if len(rows) < 2 or objects.n_classes < 2:
        raise UserError(f"{metric}: {len(rows)} rows with a box, of {objects.n_classes} classes: it needs two of each")
    if bool((objects.boxes == objects.boxes[0]).all()):
        raise UserError(f"{metric}: all boxes are equal: there are no places to predict")
    return objects


def iou_of_pairs(a: Tensor, b: Tensor) -> Tensor:
    """Return (N,) intersection over union of boxes a and b (N, 4) with sides left, top, right, bottom.

    0 where a box is empty or turned inside out.
    """
    area = [(boxes[:, 2:] - boxes[:, :2]).clamp_min(0).prod(1) for boxes in (a, b)]
    low, high = a[:, :2].maximum(b[:, :2]), a[:, 2:].minimum(b[:, 2:])
    shared = (high - low).clamp_min(0).prod(1) * (area[0] > 0) * (area[1] > 0)
    return shared / (area[0] + area[1] - shared).clamp_min(1e-300)
