"""Data, schedule and trials, shared by detection and segmentation."""

from dataclasses import dataclass, replace
from typing import Any

from evaluation.datasets import AS_USUAL, Reading
from evaluation.features import contradicted
from evaluation.features.checks import check_value, whole_number
from evaluation.protocols.base import Subject
from evaluation.results.result import Result
from evaluation.tasks.detection.batches import readers
from evaluation.tasks.detection.coco_ap import CocoAP
from evaluation.tasks.detection.datasets.boxes import Boxes
from evaluation.tasks.detection.datasets.sources import boxes_of
from evaluation.tasks.detection.keeping import keep_trials
from evaluation.tasks.detection.options import Options
from evaluation.tasks.detection.recipes import source_of
from evaluation.tasks.detection.results import results_of
from evaluation.tasks.detection.schedules import find_schedule
from evaluation.tasks.detection.training import Training
from evaluation.tasks.detection.trials import Bench
from evaluation.tuning import NONE
from evaluation.tuning.processes import process_group
from evaluation.tuning.recorded import open_folder
from sslkit.errors import UserError
from sslkit.models.detectors.body import check_tune
from sslkit.models.detectors.detector import check_fit
from sslkit.models.model import Model
from sslkit.options.settings import MOST_SEED
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of


@dataclass(frozen=True, eq=False)
class Opened:
    """Checked model and data of the trials of protocol `name`. mirror: training images at random."""

    name: str
    model: Model
    train: Boxes
    test: Boxes
    masks: bool
    mirror: bool = True


def open_splits(data: Any, reading: Reading = AS_USUAL, *, masks: bool = False, empty: str) -> tuple[Boxes, Boxes]:
    """Train and test of a detection set: a source of `open_boxes`, or {"train": Boxes, "test": Boxes}.

    empty: see `open_boxes`.

    Raises one UserError for all that is missing of both, for splits of different classes, and with `masks` for a set
    that has none.
    """
    if isinstance(data, dict):
        if not {"train", "test"} <= set(data):
            raise UserError(f"data must have the splits train and test; it has {', '.join(data) or 'none'}")
        train, test = (boxes_of(data[split], split, reading, masks=masks, empty=empty) for split in ("train", "test"))
    else:
        train, test = _both(data, reading, masks, empty)
    if train.classes != test.classes:
        raise UserError(f"{train.name}: train and test have different classes: {train.classes} and {test.classes}")
    if not (~(test.instances.iscrowd | test.instances.difficult)).any():
        raise UserError(f"{test.name}: no object of its split {test.split!r} counts: all are crowds or difficult")
    if masks and not (train.has_masks and test.has_masks):
        raise UserError(f"{train.name} has boxes but no masks: take task=boxes (protocol detection)")
    return train.to_learn_from(empty), test


def run_trials(protocol: str, subject: Subject, options: Options, runtime: Runtime, *, masks: bool) -> list[Result]:
    """Open the subject and do the trials of a protocol for a call from Python; see `detection`."""
    _check_runtime(options.resolve_recipe(), runtime)
    return measure_trials(open_trials(protocol, subject, options, masks=masks), options, runtime)


def open_trials(name: str, subject: Subject, options: Options, *, masks: bool) -> Opened:
    """Open and check all that the trials of protocol `name` need. Raises UserError."""
    options, source = options.resolve_recipe(), source_of(subject.data, options.recipe)
    check_trials(options.trials, 0)
    CocoAP("box")  # says now, not after the training, that its packages are missing
    check_fit(subject.model, options.arch)

    def read() -> tuple[Boxes, Boxes]:
        train, test = open_splits(source, subject.reading, masks=masks, empty=options.empty)
        return (train, test) if masks else (train.without_masks(), test.without_masks())

    train, test = subject.once(("boxes", masks, options.recipe, options.empty), read)
    task = Opened(name, subject.model, train, test, masks, subject.reading.mirrors(train))
    plan_training(task, options, Runtime())
    contradicted.warn_of_pictures(subject.model, train)
    return task


def measure_trials(opened: Opened, options: Options, runtime: Runtime) -> list[Result]:
    """The results of the trials; see `evaluation.tasks.detection.protocols.detection.detection`."""
    options = options.resolve_recipe()
    _check_runtime(options, runtime)
    training = plan_training(opened, options, runtime)
    seeds = list(range(runtime.seed, runtime.seed + options.trials))
    with process_group(runtime) as of_process, open_folder(runtime.out) as out:
        keep = NONE if runtime.out is None else options.keep
        bench = Bench(opened.name, opened.model, opened.train, opened.test, replace(of_process, out=out), keep)
        records = bench.run(training, seeds)
        results = results_of(bench, training, records, seeds) if records else []
        entries = keep_trials(bench, [replace(training, seed=seed) for seed in seeds], records, results)
    for result in results:
        result.details["kept"] = entries
        if runtime.out is None:
            del result.details["pictures"], result.details["kept"]  # they are gone with the folder
    return results


def _check_runtime(options: Options, runtime: Runtime) -> None:
    check_trials(options.trials, runtime.seed)
    whole_number("workers", readers(runtime), 0)
    device_of(runtime.device)


def check_trials(trials: int, seed: int) -> None:
    """Check the number of trials, whose seeds are seed, seed + 1, ... Raises UserError."""
    check_value("trials", trials, int, least=1, most=1000)
    check_value("seed", seed, int, least=0, most=MOST_SEED + 1 - trials)


def plan_training(opened: Opened, options: Options, runtime: Runtime) -> Training:
    """Return the training of a detector, from settled options. Raises UserError for options out of range."""
    check_tune(options.tune)
    schedule = find_schedule(options.schedule, opened.train.name)
    chosen = schedule.change(options.steps, options.batch_size, options.lr)
    how = (options.tune, runtime.precision, runtime.seed, opened.mirror)
    return Training(chosen, options.arch, opened.masks, *how)


def _both(data: Any, reading: Reading, masks: bool, empty: str) -> tuple[Boxes, Boxes]:
    opened, missing = [], []
    for split in ("train", "test"):
        try:
            opened.append(boxes_of(data, split, reading, masks=masks, empty=empty))
        except UserError as error:
            missing.append(str(error))
    if missing:
        raise UserError("; and ".join(dict.fromkeys(missing)))
    return opened[0], opened[1]
