"""Named settings of detection, those of published tables."""

from typing import Any

from evaluation.protocols.detection.options import Options

USUAL = {"task": "boxes", "schedule": Options.schedule, "arch": Options.arch, "trials": Options.trials}
RECIPES: dict[str, dict[str, Any]] = {  # the columns of table VII of Song et al. 2024
    "paper_voc07": {**USUAL, "data": "voc07", "trials": 5},
    "paper_voc0712": {**USUAL, "data": "voc0712", "trials": 5},
    "paper_coco": {**USUAL, "data": "coco2017", "task": "masks"},
}
