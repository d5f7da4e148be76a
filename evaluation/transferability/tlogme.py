"""TLogME: LogME of the classes and of the places of objects, for detection."""

from evaluation.transferability._objects import objects_of
from evaluation.transferability.base import Sample, Score
from evaluation.transferability.logme import class_targets, logme, make_axes, number_targets

NEEDS = ("features", "boxes")


def score(sample: Sample) -> Score:
    """(mean_c LogME(t_c) + mean_k LogME(b_k)) / 2: t_c the indicators of the classes, b_k the four sides of the boxes.

    Both evidences are those of `logme`, of the same features, over the rows that have a box; background is left out.
    Needs the boxes of the objects in their images, `boxes`, as shares of these: the sets of `data=boxes:SET` have them.
    Range: unbounded. Higher is better. Cost: O(N D^2 + D^3).
    Source: Fouquet, Maggio & Dreyfus-Schmidt, Transferability Metrics for Object Detection, arXiv 2306.15306: the mean
    of both parts as in their code, with sides in pixels, which moves every model's score alike. Their features are
    pooled inside of the box from a map of the whole image; crops of `data=boxes:SET` see a margin of it only.
    Not for: sets whose objects are all of one class, or all in one place.
    """
    objects = objects_of(sample, "tlogme")
    small = objects.compact
    axes, onto = make_axes(small.scatter)
    classes, _ = logme(axes, class_targets(small.scatter, onto))
    moving = objects.boxes[:, (objects.boxes != objects.boxes[0]).any(0)]
    places, _ = logme(axes, number_targets(small, moving, onto))
    parts = {"classes": float(classes.mean()), "places": float(places.mean())}
    return Score((parts["classes"] + parts["places"]) / 2, {**parts, "objects": len(objects)})
