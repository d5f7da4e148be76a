"""finetune(checkpoint, data): a model that predicts, its accuracy on images that took no part, and what it is above.

tuned = evaluation.finetune("runs/zoo/NAME", "path/to/images")
tuned.entry, tuned.result.value, str(tuned.decision)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from evaluation.datasets import LABELLED, Reading
from evaluation.features.extraction import LOADED
from evaluation.finetuning.linear import fit_linear, probe
from evaluation.finetuning.network import tune_network
from evaluation.finetuning.options import NETWORK, Options
from evaluation.finetuning.parts import Parts, copies_across, open_parts
from evaluation.finetuning.trained import Trained
from evaluation.learners.calibration import Calibration
from evaluation.protocols.base import TUNED
from evaluation.results.decisions import decide
from evaluation.results.numbers import describe_half, half_width
from evaluation.results.result import Result
from evaluation.tuning.keeping import card_of_accuracy, check_keepable, data_of, keep_model, make_classifier
from evaluation.tuning.processes import process_group
from sslkit.backbones.words import PIXELS
from sslkit.decision import Decision
from sslkit.errors import UserError
from sslkit.files.writing import name_of
from sslkit.models.loading import Loading, load
from sslkit.models.model import Model
from sslkit.options.settings import storable
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime, silent
from sslkit.runtime.device import device_of
from sslkit.runtime.distributed import rank
from sslkit.runtime.waiting import from_first, together
from sslkit.zoo.classifier import Classifier
from sslkit.zoo.entry import CARD, ZooEntry

_WORK = "the kept model"  # in messages to other ranks
SHARED = (*LOADED, *LABELLED, *(name for name in TUNED if name != "out"), "seed")


@dataclass(frozen=True, eq=False)
class Finetuned:
    """A model that predicts, and what is known of it.

    entry: the folder of the model. result: its accuracy on the test images. pixels: that of a linear classifier of raw
    pixels. decision: on both and the largest class, or the mean; None for several labels an image, which have no paired
    test. calibration: of its probabilities; None for numbers, and where no images were left to fit it. note: on the
    test images, "" for none.
    """

    entry: ZooEntry
    result: Result
    pixels: Result
    decision: Decision | None
    calibration: Calibration | None
    note: str


@public(*SHARED)
def finetune(
    checkpoint: Any,
    data: Any,
    *,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
    say: Callable[[str], None] = silent,
) -> Finetuned:
    """Train a model on labelled images, measure it on images that took no part, and keep it as an entry.

        tuned = evaluation.finetune("runs/zoo/NAME", "path/to/images", head="linear")
        tuned.entry.folder, tuned.result.value

    checkpoint: a model, see `sslkit.load`. data: labelled images, see `evaluation.open_split`; or a mapping
        of "train", "test" and, if there is one, "val" to open splits. Images without a label are left out, with a line.
    Of data without test images a fifth is held back, groups and copies kept together. The kept model has not learned
    from test images, so that its number is its own.
    head=network is the protocol `evaluation.fine_tune` with one seed: each setting of the grid is tuned without a fifth
    of train and judged on that, the best one on all of train, to its last step. head=linear is
    `evaluation.linear_probe`; its standardisation is part of the layer.
    The probabilities are calibrated by one temperature, fitted on held-out images.
    Numbers (columns.label_kind=number) are measured by R2 and their errors: head=linear is a ridge, its strength
    chosen in folds of train and val; head=network has one output, trained on squared errors. The model tells, too,
    what 90 % of new images lie within, by its errors on the test images; see `results.numbers.half_width`.
    A stopped call goes on from the files below `out`, where the entry is, too.
    Raises UserError before any training for bad options, models that no entry can hold, one class, numbers that are
    alike or fewer than ten, and too few images.
    """
    options.check(reading.columns.reads_numbers)
    if checkpoint is None:
        raise UserError("give checkpoint=, the network to begin with: runs/zoo/NAME, efficientnet_lite0, timm:NAME")
    model = loading.load(checkpoint)
    check_keepable(model)
    device_of(runtime.device)
    parts = open_parts(data, reading)
    for line in filter(
        None, (parts.note and f"no test images of its own; {parts.note}", copies_across(parts, reading))
    ):
        say(f"note: {line}")
    runtime = replace(runtime, out=options.out, say=say)
    with process_group(runtime) as process:
        runtime = replace(runtime, device=str(process.device), say=say if rank() == 0 else silent)
        pixels, _ = probe(load(PIXELS, in_chans=model.in_chans), parts, reading, runtime)
        with _train(model, parts, options, reading, runtime) as trained:
            return _keep(model, parts, options, reading, trained, pixels, runtime)


def _train(model: Model, parts: Parts, options: Options, reading: Reading, runtime: Runtime) -> Any:
    if options.head == NETWORK:
        return tune_network(model, parts, options, reading, runtime)
    return fit_linear(model, parts, reading, runtime)


def _keep(
    model: Model,
    parts: Parts,
    options: Options,
    reading: Reading,
    trained: Trained,
    pixels: Result,
    runtime: Runtime,
) -> Finetuned:
    """Write the entry, unless this very model is there already."""
    name = name_of(f"{model.name}-{parts.train.name}-{options.head}-{trained.run[:8]}")
    folder, result = Path(options.out) / name, replace(trained.result, model=name)
    if not from_first(_WORK, (folder / CARD).is_file):
        backbone, layers = trained.network()
        calibration, half = None, None
        if trained.beta is not None or parts.test.has_numbers:
            scores, y = trained.test(nn.Sequential(backbone, layers))
        if trained.beta is not None:
            calibration = Calibration.measure(trained.beta, trained.fitted_on, scores, y)
        if parts.test.has_numbers:
            half = half_width(y - scores[:, 0], parts.test.groups)
        classifier = _classifier(layers, parts, trained, result, calibration, half)
        learned = [model.clean(split.images) for split_name, split in parts.splits.items() if split_name != "test"]
        about = {"data": data_of(parts.source, learned), "config": _config(options, reading)}
        about |= {"epochs": trained.epochs, "seed": runtime.seed}
        with together(_WORK):
            if rank() == 0:
                keep_model(folder, model, backbone, classifier, **about)
    trained.done()
    entry = ZooEntry.load(folder)
    about = entry.card["classifier"].get("calibration")
    calibration = Calibration.of_card(about) if about else None
    return Finetuned(entry, result, pixels, decision_on(result, pixels), calibration, parts.note)


def _classifier(
    layers: nn.Sequential,
    parts: Parts,
    trained: Trained,
    result: Result,
    calibration: Calibration | None,
    half: float | None,
) -> Classifier:
    """The classifier with its calibration in the last layer. half: see `half_width`."""
    images = f"{len(parts.test):,} test images of {parts.source}, which took no part"
    measured = card_of_accuracy(result.metric, vars(result.estimate), images)
    about = {"data": parts.source, "made": trained.made, "measured": measured}
    if calibration is not None:
        about["calibration"] = vars(calibration)
    if half is not None:
        about["interval"] = describe_half(half, len(parts.test), parts.test.groups)
    classifier = make_classifier(layers, trained.classes, parts.train.y, trained.beta, about)
    return classifier if half is None else replace(classifier, half_widths=(half,))


def _config(options: Options, reading: Reading) -> dict[str, Any]:
    """The options that are not as usual, and the columns of the labels."""
    columns = {name: value for name, value in vars(reading.columns).items() if value is not None}
    return {"finetune": options.given, "columns": storable(columns)}


def decision_on(result: Result, pixels: Result) -> Decision | None:
    """Return the decision on a model beside the largest class and raw pixels; None for several labels an image."""
    if result.outcomes is None:
        return None
    both = (result, replace(pixels, protocol=result.protocol, recipe=result.recipe))
    if result.metric == "mean_per_class":  # whose differences need the labels
        both = tuple(replace(each, metric="top1", value=float(np.mean(each.outcomes))) for each in both)
    return decide(both)[0]
