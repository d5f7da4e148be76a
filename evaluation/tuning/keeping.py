"""A network and the classifier of its features, kept as a zoo entry that predicts."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from evaluation.learners.calibration import scale_outputs
from evaluation.results.records import run_id
from evaluation.tuning.trials import Runner, Trial, key
from sslkit.backbones import network_lines
from sslkit.backbones.base import Backbone
from sslkit.data.images import Images
from sslkit.errors import UserError
from sslkit.files.writing import name_of
from sslkit.models.model import Model
from sslkit.numerics.state_dicts import mismatch
from sslkit.runtime.distributed import rank
from sslkit.runtime.waiting import from_first, together
from sslkit.zoo import weights
from sslkit.zoo.classifier import IDENTITY, SIGMOID, SOFTMAX, Classifier
from sslkit.zoo.entry import CARD, WEIGHTS, ZooEntry, preprocessing, save
from sslkit.zoo.loading import load_lines
from sslkit.zoo.provenance import provenance

MODELS = "models"  # folder of what a choice or a ground truth keeps


def check_keepable(model: Model) -> None:
    """Check that an entry can hold the model's network, before it is tuned.

    A module of one's own can be kept: its entry is loaded with the module, `entry.backbone(module)`.
    Raises UserError for networks of clips, raw pixels, and features that the network does not return itself.
    """
    lines = model.backbone.recipe.lines
    if model.item.axes:
        raise UserError(f"{model.name} uses {model.item.about}, and a kept model predicts images")
    if not lines and model.source:
        raise UserError(
            f"{model.name} cannot be kept: its features are not those that a network returns itself; name the network "
            "without @ behind it, or another one than raw pixels"
        )
    network = network_lines.parse(lines)  # None of one's own code
    told = network and mismatch(network.build(model.name).state_dict(), model.net.state_dict())
    if told:
        raise UserError(f"{model.name} cannot be kept: its weights are not those of the network by its name ({told})")


def keep_model(
    folder: str | Path,
    model: Model,
    backbone: Backbone,
    classifier: Classifier,
    *,
    data: Mapping[str, Any],
    config: Mapping[str, Any],
    epochs: float,
    seed: int,
) -> ZooEntry:
    """Write an entry with the weights of `backbone`, its card and its classifier; see `keep_network`."""
    how = {"data": data, "config": config, "epochs": epochs, "seed": seed}
    return keep_network(folder, model, backbone.export(), **how).keep_classifier(classifier)


def keep_network(
    folder: str | Path,
    model: Model,
    state: Mapping[str, Tensor],
    *,
    data: Mapping[str, Any],
    config: Mapping[str, Any],
    epochs: float,
    seed: int,
) -> ZooEntry:
    """Write an entry of a network and its card, and return it.

    model: that was tuned, or whose features are classified; `check_keepable` has passed. state: of the same network,
        tuned or not. data: see `data_of`. config: the settings of the tuning. epochs: over the images; 0 for features
        as they were.
    The entry reads pictures as the model does: size, crop, interpolation, mean, std and the range of stored values.
    Raises UserError if it cannot be written.
    """
    recipe = model.backbone.recipe
    card = {
        "format": 1,
        "method": model.card.get("method") or model.source or model.name,
        "config": dict(config),
        "backbone": {
            "name": recipe.name,
            "lines": list(recipe.lines),
            "stem": recipe.stem,
            "width": model.width,
            "image_size": model.image_size,
            "in_chans": model.in_chans,
        },
        "resizing": model.resizing.of_card(),
        **init_of(model),
        "normalize": {"mean": list(model.mean), "std": list(model.std)},
        "data": dict(data),
        "seed": seed,
        "epochs": epochs,
        **provenance(),
    }
    if epochs:
        card["labels"] = True
    elif "labels" in model.card:
        card["labels"] = model.card["labels"]
    card["load"] = "\n".join(load_lines(recipe.lines, preprocessing(card), range=data.get("range")))
    return save(folder, dict(state), card)


def keep_tuned(runner: Runner, trial: Trial, *, beta: float | None, source: str, about: Mapping[str, Any]) -> ZooEntry:
    """Keep the network of a trial in MODELS beside the records, tuned again unless it kept its weights.

    Returns its entry; of a trial that was kept before, that.
    beta: inverse temperature; None: not calibrated. source: of the data, as it was named. about: see `Classifier`,
    beside the data. Raises UserError for a network that no entry can hold.
    """
    task, setting = runner.task, trial.setting
    check_keepable(task.model)
    name = name_of(f"{task.model.name}-{task.name}-{run_id(key(task, trial))[:8]}")
    folder = runner.records.path.parent / MODELS / name
    if from_first(str(folder), (folder / CARD).is_file):
        return ZooEntry.load(folder)
    net = runner.network(trial)
    classifier = make_classifier(nn.Sequential(net.head), task.classes, task.train.y, beta, {"data": source, **about})
    with together(str(folder)):
        if rank() == 0:
            keep_model(
                folder,
                task.model,
                net.backbone,
                classifier,
                data=data_of(source, task.train.centres.parts),
                config=asdict(setting),
                epochs=round(setting.steps * setting.batch_size / len(trial.learn), 2),
                seed=setting.seed,
            )
    runner.release(trial)
    return ZooEntry.load(folder)


def make_classifier(
    layers: nn.Sequential, classes: Sequence[str], y: np.ndarray, beta: float | None, about: dict[str, Any]
) -> Classifier:
    """Return the classifier of some layers, calibrated. y: labels that it learned from. beta, about: see above."""
    *first, last = layers
    scaled = nn.Sequential(*first, scale_outputs(last, 1.0 if beta is None else beta))
    link = IDENTITY if y.dtype.kind == "f" else SOFTMAX if y.ndim == 1 else SIGMOID
    return Classifier(scaled, tuple(classes), link, about)


def card_of_accuracy(metric: str, estimate: Mapping[str, Any], images: str) -> dict[str, Any]:
    """Return the card's field on a measured accuracy. estimate: value, interval and n. images: which, in words."""
    low, high = estimate["interval"] or (None, None)
    ends = {} if low is None else {"low": low, "high": high}
    return {"metric": metric, "value": estimate["value"], **ends, "n": estimate["n"], "images": images}


def init_of(model: Model) -> dict[str, Any]:
    """Return the card's field on the weights that a model was loaded from; empty for a module."""
    if not model.source:
        return {}
    digest = weights.sha256(model.entry.folder / WEIGHTS) if model.entry else model.digest
    return {"init": {"source": model.source, "sha256": digest}}


def data_of(source: str, parts: Sequence[Images]) -> dict[str, Any]:
    """Return the card's field on the images that were learned from.

    source: as it was named. parts: the images of each split, as the network sees them.
    """
    first = parts[0]
    data = {
        "source": source,
        "images": sum(map(len, parts)),
        "digest": first.digest,
        "licence": first.licence,
        "range": None if first.range is None else list(first.range),
        "opacity": first.scale.opacity,
        "fill": first.scale.fill,
    }
    return data | ({"content": first.content_digest} if len(parts) == 1 else {})
