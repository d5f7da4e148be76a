"""Detection: Faster R-CNN on the backbone, all of it tuned, judged by COCO's and VOC's AP of boxes.

Sources: Song et al. 2024 (table VII), He et al. 2020 (MoCo, arXiv 1911.05722) and its public configuration.
"""

from pathlib import Path
from typing import Any

from evaluation.protocols._option_types import CountOrNone, PositiveOrNone, Trials
from evaluation.protocols.base import Subject
from evaluation.protocols.detection import measure
from evaluation.results.result import Result


def detection(
    model: Any,
    data: Any,
    *,
    arch: str = "c4",
    schedule: str = "full",
    trials: int = 1,
    trainable: str = "full",
    steps: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    root: str | Path = "data",
    precision: str = "float32",
    device: str = "auto",
    workers: int = 0,
    counts: str = "raise",
    every: float = 60.0,
    progress: bool = True,
) -> list[Result]:
    """AP on the test images of a detector trained on the training images, the mean over trials.

    model: see `evaluation.load_model`: a ResNet, or a plain ViT for arch="vit_pyramid". It is copied.
        Images of colour become gray (luma) for a network of one channel.
    data: see `evaluation.detection.open_boxes`, or {"train": Boxes, "test": Boxes}. root, counts: likewise.
    arch: "c4", "fpn" or "vit_pyramid". trainable: "full", or "frozen" for the backbone as it is.
    schedule: "full" (MoCo's for VOC 07 and 07+12, 1x for COCO), "full_2x", "short" or "smoke"; all but full are marked
        as not comparable to published numbers. steps, batch_size, lr: others than the schedule's, which are marked so.
    trials: seeds seed, seed + 1, ...: new layers, order and draws. MoCo's authors advise the mean of 5 on VOC.
    out: folder of `detection.jsonl`, to which every finished trial is added, and of `detection/`: checkpoints from
        which a killed run goes on to the same weights, the detectors' weights, pictures. None: nothing is kept.
    precision: "float32", or "bfloat16" autocast. device: "auto" is a GPU if there is one. workers: processes that read
        images. every: seconds between two checkpoints.

    Under torchrun the ranks share every batch, with synchronised batch norm; ranks other than 0 return [].
    Returns COCO's result (coco_ap; coco_ap50 and coco_ap75 in `others`) and VOC's (voc_ap50; voc_ap, voc_ap75), each
    with a t interval over trials, None for one; on a set of VOC its own comes first.
    Raises UserError for options out of range, missing files, a network that does not fit, missing packages, and a
    loss that is NaN or infinite.
    """
    given = dict(locals())
    return measure.measure("detection", given.pop("model"), given.pop("data"), masks=False, **given)


def open_data(subject: Subject) -> None:
    """Raises UserError for a source that is no detection set, before anything is computed."""
    measure.open_splits(subject.data, subject.root, counts=subject.how.get("counts", "raise"))


def check(subject: Subject, **options: Any) -> None:
    """Check the network and the schedule before anything is computed. Raises UserError."""
    measure.check(subject, masks=False, **options)


def evaluate(
    subject: Subject,
    *,
    arch: measure.Arch = "c4",
    schedule: str = "full",
    trials: Trials = 1,
    trainable: measure.Trainable = "full",
    steps: CountOrNone = None,
    batch_size: CountOrNone = None,
    lr: PositiveOrNone = None,
) -> list[Result]:
    """Faster R-CNN on the backbone: GPU-days with schedule=full, minutes with smoke; see `detection`."""
    chosen = {"arch": arch, "schedule": schedule, "trials": trials, "trainable": trainable}
    chosen |= {"steps": steps, "batch_size": batch_size, "lr": lr}
    return detection(subject.model, subject.data, **chosen, **measure.of_subject(subject))
