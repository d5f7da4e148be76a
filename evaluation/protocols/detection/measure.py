"""What the protocols of detection and of segmentation share: the data, the schedule, the trials."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from evaluation.features.checks import checked
from evaluation.features.models import load_model
from evaluation.protocols.base import Subject
from evaluation.protocols.detection.body import TRAINABLE, check_trainable
from evaluation.protocols.detection.boxes import Boxes
from evaluation.protocols.detection.coco_ap import CocoAP
from evaluation.protocols.detection.detector import ARCHITECTURES, check_fit
from evaluation.protocols.detection.results import results_of
from evaluation.protocols.detection.schedules import find_schedule
from evaluation.protocols.detection.sources import open_boxes
from evaluation.protocols.detection.training import SAVED, Training
from evaluation.protocols.detection.trials import Bench, Place
from evaluation.results.result import Result
from evaluation.tuning.loop import whole_number
from sslkit.errors import UserError
from sslkit.settings import MOST_SEED, Limits

Arch = Annotated[str, Limits(choices=ARCHITECTURES)]
Trainable = Annotated[str, Limits(choices=TRAINABLE)]


def open_splits(
    data: Any, root: str | Path = "data", *, masks: bool = False, counts: str = "raise"
) -> tuple[Boxes, Boxes]:
    """Train and test of a detection set: a source of `open_boxes`, or {"train": Boxes, "test": Boxes}.

    Raises one UserError for all that is missing of both, for splits of different classes, and with `masks` for a set
    that has none.
    """
    if isinstance(data, dict):
        if not {"train", "test"} <= set(data):
            raise UserError(f"data must have the splits train and test; it has {', '.join(data) or 'none'}")
        train, test = data["train"], data["test"]
    else:
        train, test = _both(data, root, masks, counts)
    if train.classes != test.classes:
        raise UserError(f"{train.name}: train and test have different classes: {train.classes} and {test.classes}")
    if not (~(test.instances.iscrowd | test.instances.difficult)).any():
        raise UserError(f"{test.name}: no object of its split {test.split!r} counts: all are crowds or difficult")
    if masks and not (train.has_masks and test.has_masks):
        raise UserError(f"{train.name} has boxes but no masks: take task=boxes (protocol detection)")
    return train, test


def measure(
    name: str,
    model: Any,
    data: Any,
    *,
    masks: bool,
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
    every: float = SAVED,
    progress: bool = True,
) -> list[Result]:
    """The results of protocol `name`; see `evaluation.protocols.detection.detection` for the arguments."""
    check_trials(trials, seed)
    whole_number("workers", workers, 0)
    CocoAP("box")  # says now, not after the training, that its packages are missing
    loaded = load_model(model)
    check_fit(loaded, arch)
    train, test = open_splits(data, root, masks=masks, counts=counts)
    train, test = (train, test) if masks else (train.without_masks(), test.without_masks())
    how = {"arch": arch, "trainable": trainable, "precision": precision, "seed": seed}
    training = planned(train, masks=masks, schedule=schedule, steps=steps, batch_size=batch_size, lr=lr, **how)
    seeds = list(range(seed, seed + trials))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()) if out is None else out)
        bench = Bench(name, loaded, train, test, Place(folder, device, workers, every, progress))
        records = bench.run(training, seeds)
        results = results_of(bench, training, records, seeds) if records else []
    for result in results if out is None else ():
        del result.details["pictures"]  # they are gone with the folder
    return results


def check_trials(trials: int, seed: int) -> None:
    """Check the number of trials, whose seeds are seed, seed + 1, ... Raises UserError."""
    checked("trials", trials, int, least=1, most=1000)
    checked("seed", seed, int, least=0, most=MOST_SEED + 1 - trials)


def planned(
    train: Boxes,
    *,
    masks: bool,
    arch: str = "c4",
    schedule: str = "full",
    trainable: str = "full",
    steps: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    precision: str = "float32",
    seed: int = 0,
) -> Training:
    """How a detector is trained on a set. Raises UserError for options out of range."""
    check_trainable(trainable)
    chosen = find_schedule(schedule, train.name).changed(steps, batch_size, lr)
    return Training(chosen, arch, masks, trainable, precision, seed)


def check(subject: Subject, *, masks: bool, arch: str = "c4", trials: int = 1, **options: Any) -> None:
    """Check that the network fits the detector and that the set has the schedule. Raises UserError."""
    check_fit(subject.model, arch)
    train, _ = open_splits(subject.data, subject.root, masks=masks, counts=subject.how.get("counts", "raise"))
    planned(train, masks=masks, arch=arch, **options)


def of_subject(subject: Subject) -> dict[str, Any]:
    """The arguments of `measure` that a subject of evaluation says."""
    how = subject.how
    place = {"out": subject.out, "root": subject.root, "seed": subject.seed, "device": how.get("device", "auto")}
    place |= {"precision": how.get("precision", "float32"), "counts": how.get("counts", "raise")}
    workers = how.get("workers", 0)
    return place | {"workers": 0 if workers == "auto" else workers, "progress": how.get("progress", True)}


def _both(data: Any, root: str | Path, masks: bool, counts: str) -> tuple[Boxes, Boxes]:
    opened, missing = [], []
    for split in ("train", "test"):
        try:
            opened.append(open_boxes(data, split, root, masks=masks, counts=counts))
        except UserError as error:
            missing.append(str(error))
    if missing:
        raise UserError("; and ".join(dict.fromkeys(missing)))
    return opened[0], opened[1]
