"""Which pixels are of each object? Mask R-CNN on the backbone, all of it tuned: COCO's AP of masks and of boxes.

Sources: Song et al. 2024 (table VII), He et al. 2017 (arXiv 1703.06870), and MoCo's public configuration.
"""

from typing import Any

from evaluation.datasets import Reading
from evaluation.protocols.base import Subject
from evaluation.results.result import Result
from evaluation.tasks.detection.measure import Opened, measure_trials, open_trials, run_trials
from evaluation.tasks.detection.options import SHARED, Options
from evaluation.tasks.detection.output import TERMINAL
from evaluation.tasks.detection.protocols import detection
from sslkit.models.loading import Loading
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime


@public(*SHARED)
def segmentation(
    model: Any,
    data: Any = None,
    *,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> list[Result]:
    """AP of the masks and boxes of a Mask R-CNN, the mean over trials, as `detection`.

    model: a ResNet or a plain ViT. data: with masks. Below `out` are `segmentation.jsonl` and `segmentation/`.
    Returns COCO's results of masks (coco_mask_ap; coco_mask_ap50, coco_mask_ap75 in `others`) and of boxes (coco_ap),
    and VOC's of boxes (voc_ap50), as `detection` does.
    Raises UserError as `detection` does, and for a set without masks.
    """
    return run_trials("segmentation", Subject(loading.load(model), data, reading), options, runtime, masks=True)


def open(subject: Subject, options: Options) -> Opened:
    """Check the data, the network and the schedule before anything is computed. Raises UserError."""
    return open_trials("segmentation", subject, options, masks=True)


def run(opened: Opened, options: Options, runtime: Runtime) -> list[Result]:
    """Mask R-CNN on the backbone: GPU-days with schedule=full, minutes with smoke; see `segmentation`."""
    return measure_trials(opened, options, runtime)


def beside(result: Result) -> tuple[str, ...]:
    """Name the further metrics, as detection does."""
    return detection.beside(result)


terminal = TERMINAL
