"""Instance segmentation: Mask R-CNN on the backbone, all of it tuned, judged by COCO's AP of masks and of boxes.

Sources: Song et al. 2024 (table VII), He et al. 2017 (arXiv 1703.06870), and MoCo's public configuration.
"""

from pathlib import Path
from typing import Any

from evaluation.protocols._option_types import CountOrNone, PositiveOrNone, Trials
from evaluation.protocols.base import Subject
from evaluation.protocols.detection import measure
from evaluation.results.result import Result


def segmentation(
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
    """AP of the masks and boxes of a Mask R-CNN, the mean over trials; the arguments are those of `detection`.

    data: with masks. out: folder of `segmentation.jsonl` and of `segmentation/`.
    Returns COCO's results of masks (coco_mask_ap; coco_mask_ap50, coco_mask_ap75 in `others`) and of boxes (coco_ap),
    and VOC's of boxes (voc_ap50), as `detection` does.
    Raises UserError as `detection` does, and for a set without masks.
    """
    given = dict(locals())
    return measure.measure("segmentation", given.pop("model"), given.pop("data"), masks=True, **given)


def open_data(subject: Subject) -> None:
    """Raises UserError for a source that is no detection set with masks, before anything is computed."""
    measure.open_splits(subject.data, subject.root, masks=True, counts=subject.how.get("counts", "raise"))


def check(subject: Subject, **options: Any) -> None:
    """Check the network and the schedule before anything is computed. Raises UserError."""
    measure.check(subject, masks=True, **options)


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
    """Mask R-CNN on the backbone: GPU-days with schedule=full, minutes with smoke; see `segmentation`."""
    chosen = {"arch": arch, "schedule": schedule, "trials": trials, "trainable": trainable}
    chosen |= {"steps": steps, "batch_size": batch_size, "lr": lr}
    return segmentation(subject.model, subject.data, **chosen, **measure.of_subject(subject))
