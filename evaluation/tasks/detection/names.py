"""Detection and instance segmentation: data sets, detectors on any backbone, training and average precision.

    model = sslkit.load("runs/zoo/NAME")
    detector = evaluation.detection.build_detector(model, classes=20, tune="all", seed=0)
    train = evaluation.detection.open_boxes("voc07", "train", root="data")

`evaluation.object_detection` and `evaluation.instance_segmentation` run all of it; imports are lazy.
"""

from sslkit import lazy

__getattr__, __dir__, __all__ = lazy.attributes(
    __name__,
    {
        "Boxes": "evaluation.tasks.detection.datasets.boxes:Boxes",
        "Schedule": "evaluation.tasks.detection.schedules:Schedule",
        "Sizes": "sslkit.models.detectors.sizes:Sizes",
        "as_input": "sslkit.models.detectors.body:as_input",
        "RECIPES": "evaluation.tasks.detection.recipes:RECIPES",
        "Training": "evaluation.tasks.detection.training:Training",
        "average_precisions": "evaluation.tasks.detection.prediction:average_precisions",
        "build_detector": "sslkit.models.detectors.detector:build_detector",
        "coco_ap": "evaluation.tasks.detection.coco_ap:coco_ap",
        "find_schedule": "evaluation.tasks.detection.schedules:find_schedule",
        "draw_predictions": "evaluation.tasks.detection.pictures:draw_predictions",
        "open_boxes": "evaluation.tasks.detection.datasets.sources:open_boxes",
        "predictions": "evaluation.tasks.detection.prediction:predictions",
        "train_detector": "evaluation.tasks.detection.training:train_detector",
        "voc_ap": "evaluation.tasks.detection.voc_ap:voc_ap",
    },
)
