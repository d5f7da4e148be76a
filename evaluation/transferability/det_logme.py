"""Det-LogME: LogME of classes and places of objects as one target, and the overlap of the boxes it predicts.

A reconstruction: the abstract and a summary of the paper could be read, its formulas could not.
"""

import torch
from torch import Tensor

from evaluation.transferability._objects import iou_of_pairs, objects_of
from evaluation.transferability.base import Sample, Score
from evaluation.transferability.logme import (
    Axes,
    Targets,
    fixed_point,
    logme,
    make_axes,
    number_targets,
    posterior_mean,
)

NEEDS = ("features", "boxes")


def class_boxes(boxes: Tensor, y: Tensor, classes: int) -> Tensor:
    """Return (N, 4 C): the box of each object in the four columns of its class, 0 in the others'."""
    one_hot = torch.nn.functional.one_hot(y, classes).to(boxes)
    return (one_hot[:, :, None] * boxes[:, None, :]).flatten(1)


def predict_boxes(small: Sample, axes: Axes, targets: Targets) -> Tensor:
    """Return (N, 4) the sides by the linear model of most evidence, of all classes together. targets: the sides."""
    fit, _ = fixed_point(axes, targets)
    weights = posterior_mean(axes, targets, fit.tau)
    return small.scatter.eigenbasis.coordinates(small.features.T).T @ weights


def score(sample: Sample, *, mu: float = 1.0) -> Score:
    """mean_k LogME(u_k) + mu mean_i IoU(b_i, X_i m): u the boxes by class, m the posterior mean for the four sides.

    u: (N, 4 C), each object's box in the columns of its class and 0 elsewhere, so that classes and places are one
        target. mu: weight of the overlap of the predicted boxes, which does not depend on the number of classes.
    Takes the rows that have a box and leaves background out, as `tlogme`; boxes are shares of the images.
    Range: unbounded. Higher is better. Cost: O(N D^2 + D^3).
    Source: Wang, Li, Li & Dou, Efficient Transferability Assessment for Selection of Pre-trained Detectors, WACV 2024,
    reconstructed from its abstract. Their features are of the level of a detector's pyramid that fits an object's size;
    here they are of crops.
    Not for: sets whose objects are all of one class, or all in one place.
    """
    objects = objects_of(sample, "det_logme")
    small = objects.compact
    axes, onto = make_axes(small.scatter)
    unified = class_boxes(objects.boxes, objects.labels, objects.n_classes)
    unified = unified[:, (unified != unified[0]).any(0)]
    evidence, _ = logme(axes, number_targets(small, unified, onto))
    predicted = predict_boxes(small, axes, number_targets(small, objects.boxes, onto))
    overlap = float(iou_of_pairs(objects.boxes, predicted).mean())
    parts = {"unified": float(evidence.mean()), "iou": overlap}
    return Score(parts["unified"] + mu * parts["iou"], {**parts, "objects": len(objects)})
