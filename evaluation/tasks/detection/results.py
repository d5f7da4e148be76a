"""Results of detection: the records of some trials as numbers, each under its own name and marked for what it is."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from evaluation.results import unseen
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate, over_seeds
from evaluation.tasks.detection.datasets.boxes import Boxes
from evaluation.tasks.detection.datasets.sources import VOC
from evaluation.tasks.detection.training import Training
from evaluation.tasks.detection.trials import Bench
from sslkit.models.model import Model

# Of each family the number that stands first, and those beside it.
FAMILIES = {
    "coco": ("coco_ap", ("coco_ap50", "coco_ap75")),
    "voc": ("voc_ap50", ("voc_ap", "voc_ap75")),
    "mask": ("coco_mask_ap", ("coco_mask_ap50", "coco_mask_ap75")),
}
RESNET50 = 23_508_032  # parameters of a ResNet-50 without its classifier
TITLES = {"c4": "C4", "fpn": "FPN", "vit_pyramid": "ViT pyramid"}


def results_of(
    bench: Bench, training: Training, records: Sequence[dict[str, Any]], seeds: Sequence[int]
) -> list[Result]:
    """A result of each family: the mean over trials with its t interval, the other numbers and each trial beside it.

    Masks come first where there are some, else VOC's numbers on a set of VOC and COCO's elsewhere. The seconds of all
    trials stand in the first result. Of one trial there is no interval.
    """
    order = ("voc", "coco") if bench.test.name in VOC else ("coco", "voc")
    order = ("mask", *order) if training.masks else order
    seconds = [sum(record["seconds"] for record in records), *[0.0] * (len(order) - 1)]
    return [
        _result(bench, training, records, seeds, FAMILIES[family], spent)
        for family, spent in zip(order, seconds, strict=True)
    ]


def seed_name(seed: int) -> str:
    """Return what a trial's number is called in `others`."""
    return f"seed {seed}"


def describe(training: Training, model: Model, train: Boxes, test: Boxes) -> str:
    """ "C4 Faster R-CNN, schedule smoke, not comparable to published numbers"."""
    schedule = training.schedule
    kind = f"{TITLES[training.arch]} {'Mask' if training.masks else 'Faster'} R-CNN"
    frozen = "" if training.tune == "all" else ", frozen backbone"
    precision = "" if training.precision == "float32" else f", {training.precision}"
    precision += "" if training.mirror else ", no mirror images"
    published = comparable(training, model, train, test)
    standing = f"as {schedule.published}" if published else "not comparable to published numbers"
    return f"{kind}{frozen}, schedule {schedule.name}{precision}, {standing}"


def comparable(training: Training, model: Model, train: Boxes, test: Boxes) -> bool:
    """Return whether this follows a published schedule: its task, a ResNet-50 C4, float32, all images of the sets.

    What torchvision does in another way than detectron2 is named in `sslkit.models.detectors.c4`.
    """
    schedule, how = training.schedule, (training.arch, training.tune, training.precision, training.masks)
    if not (schedule.published and training.mirror) or how != ("c4", "all", "float32", schedule.masks):
        return False
    resnet50 = model.in_chans == 3 and sum(p.numel() for p in model.net.parameters()) == RESNET50
    return resnet50 and train.whole and test.whole


def _result(
    bench: Bench,
    training: Training,
    records: Sequence[dict[str, Any]],
    seeds: Sequence[int],
    family: tuple[str, tuple[str, ...]],
    seconds: float,
) -> Result:
    metric, beside = family
    values = {name: [record["ap"][name] for record in records] for name in (metric, *beside)}
    others = {name: over_seeds(values[name]) for name in beside}
    if all(record["unseen"] for record in records):
        others[unseen.UNSEEN] = over_seeds([record["unseen"][metric] for record in records])
    in_train, tested = records[0]["in_train"], len(bench.test)
    several = len(seeds) > 1
    if several:
        each = zip(seeds, values[metric], strict=True)
        others |= {seed_name(seed): Estimate(value, None, "one trial", 1) for seed, value in each}
    paired = hashlib.sha256(f"{bench.test.digest} {metric} {list(seeds)}".encode()).hexdigest()
    return Result.from_estimate(
        over_seeds(values[metric]),
        protocol=bench.name,
        recipe=describe(training, bench.model, bench.train, bench.test),
        metric=metric,
        model=bench.model.name,
        data=bench.test.name,
        others=others,
        seeds=list(seeds),
        digests={"model": bench.model.digest, "train": bench.train.digest, "test": bench.test.digest},
        seconds=seconds,
        leaky=in_train > unseen.FEW * tested,
        details=_details(bench, training, metric)
        | {unseen.IN_TRAIN: in_train, unseen.TESTED: tested}
        | {"pictures": [record["picture"] for record in records]},
        outcomes=np.array(values[metric]) if several else None,
        paired_on=paired if several else "",
    )


def _details(bench: Bench, training: Training, metric: str) -> dict[str, Any]:
    """The choices made."""
    schedule, test = training.schedule, bench.test
    details = {
        "comparable": comparable(training, bench.model, bench.train, test),
        "schedule": schedule.name,
        "arch": training.arch,
        "tune": training.tune,
        "masks": training.masks,
        "iterations": schedule.steps,
        "drops": list(schedule.drops),
        "warmup": schedule.warmup,
        "batch_size": schedule.batch_size,
        "lr": schedule.lr,
        "optimizer": schedule.optimizer,
        "sides": list(schedule.sizes.sides),
        "precision": training.precision,
        "mirror": training.mirror,
        "images": [len(bench.train), len(test)],
        "without_an_object": bench.train.left_out,
    }
    if metric == FAMILIES["voc"][0]:
        details["voc_form"] = test.voc_form
    if bench.model.in_chans == 1:
        details["input"] = "gray: luma of the images"
    return details | ({"notes": test.note} if test.note else {})
