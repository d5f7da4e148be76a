"""Detection and instance segmentation: data sets, detectors on any backbone, training and average precision.

    detector = evaluation.detection.build_detector("runs/zoo/NAME", classes=20)
    train = evaluation.detection.open_boxes("voc07", "train", root="data")

`evaluation.object_detection` and `evaluation.instance_segmentation` run all of it; imports are lazy.
"""

from sslkit import lazy

__getattr__, __dir__, __all__ = lazy.attributes(
    __name__,
    {
        "Boxes": "evaluation.protocols.detection.boxes:Boxes",
        "Schedule": "evaluation.protocols.detection.schedules:Schedule",
        "Sizes": "evaluation.protocols.detection.sizes:Sizes",
        "as_input": "evaluation.protocols.detection.body:as_input",
        "RECIPES": "evaluation.protocols.detection.recipes:RECIPES",
        "Training": "evaluation.protocols.detection.training:Training",
        "average_precisions": "evaluation.protocols.detection.prediction:average_precisions",
        "build_detector": "evaluation.protocols.detection.detector:build_detector",
        "coco_ap": "evaluation.protocols.detection.coco_ap:coco_ap",
        "find_schedule": "evaluation.protocols.detection.schedules:find_schedule",
        "draw_predictions": "evaluation.protocols.detection.pictures:draw_predictions",
        "open_boxes": "evaluation.protocols.detection.sources:open_boxes",
        "predictions": "evaluation.protocols.detection.prediction:predictions",
        "train_detector": "evaluation.protocols.detection.training:train_detector",
        "voc_ap": "evaluation.protocols.detection.voc_ap:voc_ap",
    },
)
