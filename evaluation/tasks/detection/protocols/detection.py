"""Where are the objects? Faster R-CNN on the backbone, all of it tuned: COCO's and VOC's AP of boxes.

Sources: Song et al. 2024 (table VII), He et al. 2020 (MoCo, arXiv 1911.05722) and its public configuration.
"""

from typing import Any

from evaluation.datasets import Reading
from evaluation.protocols.base import Subject
from evaluation.results.result import Result
from evaluation.results.unseen import UNSEEN
from evaluation.tasks.detection.measure import Opened, measure_trials, open_trials, run_trials
from evaluation.tasks.detection.options import SHARED, Options
from evaluation.tasks.detection.output import TERMINAL
from evaluation.tasks.detection.results import seed_name
from sslkit.models.loading import Loading
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime


@public(*SHARED)
def detection(
    model: Any,
    data: Any = None,
    *,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> list[Result]:
    """AP on the test images of a detector trained on the training images, the mean over trials.

        results = evaluation.object_detection("runs/zoo/NAME", "clipart_boxes", schedule="smoke")

    model: see `sslkit.load`: a ResNet, or a plain ViT for arch="vit_pyramid". It is copied.
        Images of colour become gray (luma) for a network of one channel.
    data: see `evaluation.detection.open_boxes`, or {"train": Boxes, "test": Boxes}; None: the recipe's.
    Another number of steps, images or another rate than the schedule's is marked so. Below `out` are
    `detection.jsonl`, to which every finished trial is added, and `detection/`: checkpoints from which a killed run
    goes on to the same weights, and pictures. In `models/` are the kept detectors, entries whose `predict` gives boxes.

    Under torchrun the ranks share every batch, with synchronised batch norm; ranks other than 0 return [].
    Returns COCO's result (coco_ap; coco_ap50 and coco_ap75 in `others`) and VOC's (voc_ap50; voc_ap, voc_ap75), each
    with a t interval over trials, None for one; on a set of VOC its own comes first.
    Raises UserError for options out of range, missing files, a network that does not fit, missing packages, and a
    loss that is NaN or infinite.
    """
    return run_trials("detection", Subject(loading.load(model), data, reading), options, runtime, masks=False)


def open(subject: Subject, options: Options) -> Opened:
    """Check the data, the network and the schedule before anything is computed. Raises UserError."""
    return open_trials("detection", subject, options, masks=False)


def run(opened: Opened, options: Options, runtime: Runtime) -> list[Result]:
    """Faster R-CNN on the backbone: GPU-days with schedule=full, minutes with smoke; see `detection`."""
    return measure_trials(opened, options, runtime)


def beside(result: Result) -> tuple[str, ...]:
    """Every number under its own name, without the trials."""
    hidden = {UNSEEN, *map(seed_name, result.seeds)}  # the former stands in the cell
    return tuple(name for name in result.others if name not in hidden)


terminal = TERMINAL
