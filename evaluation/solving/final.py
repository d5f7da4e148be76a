"""The end: the chosen model is fitted to all known images, meets the held-back ones once, beside what costs nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from evaluation.features.extraction import features_of
from evaluation.features.untrained import with_random_weights
from evaluation.learners.calibration import scale_outputs
from evaluation.results import unseen
from evaluation.results.measures import measure, right_by_constant
from evaluation.results.numbers import half_width
from evaluation.results.result import Result, rows_digest
from evaluation.solving.probes import PROBE, Judged, judge_in_folds, linear_layer
from evaluation.solving.session import Session
from evaluation.solving.tuned import BATCH, Tuning
from evaluation.tuning.keeping import data_of, keep_model, make_classifier
from sslkit.backbones.base import Backbone
from sslkit.models.model import Model
from sslkit.zoo.entry import ZooEntry

PROTOCOL = "solve"


@dataclass(frozen=True, eq=False)
class Answer:
    """The chosen model on held-back images. backbone, layer: the network and its calibrated classifier.

    scores: (M, K) calibrated logits, or numbers, of the held-back images. half: of numbers, see `half_width`.
    """

    judged: Judged
    backbone: Backbone
    layer: nn.Linear
    scores: np.ndarray
    result: Result
    half: float | None = None


def answer(session: Session, chosen: Judged, tuning: Tuning | None) -> Answer:
    """Fit the chosen model to all known images, and measure it on those that were held back."""
    if chosen.how == PROBE:
        backbone = chosen.model.backbone
        layer, scores = fit_and_score(session, chosen)
    else:
        backbone, layer, scores = tuning.final(chosen)
    beta = 1.0 if session.problem.has_numbers else chosen.setting["beta"]
    scores = beta * scores
    held_back = session.problem.held_back
    half = half_width(held_back.y - scores[:, 0], held_back.groups) if held_back.has_numbers else None
    return Answer(chosen, backbone, scale_outputs(layer, beta), scores, result_of(session, chosen, scores), half)


def fit_and_score(session: Session, judged: Judged) -> tuple[nn.Linear, np.ndarray]:
    """Fit a probe to all known images; return it with its logits (M, K) of the held-back ones."""
    problem, runtime = session.problem, session.runtime
    labelled, held_back = (
        features_of(judged.model, split, session.reading, runtime) for split in (problem.development, problem.held_back)
    )
    layer = linear_layer(labelled.x, labelled.y, np.arange(len(labelled)), judged.setting["c"], runtime)
    with torch.inference_mode():
        return layer, layer(torch.from_numpy(np.array(held_back.x))).numpy()


def keep(session: Session, found: Answer) -> ZooEntry:
    """Write the chosen model as an entry that predicts, its results beside it."""
    judged, problem, estimate = found.judged, session.problem, found.result.estimate
    low, high = estimate.interval or (estimate.value, estimate.value)
    measured = {
        "metric": problem.development.metric,
        "value": estimate.value,
        "low": low,
        "high": high,
        "n": estimate.n,
    }
    about = {"data": problem.name, "made": str(judged), "measured": {**measured, "images": "held back by solve"}}
    classifier = make_classifier(nn.Sequential(found.layer), problem.classes, problem.development.y, None, about)
    classifier = classifier if found.half is None else replace(classifier, half_widths=(found.half,))
    images = judged.model.clean(problem.development.images)
    entry = keep_model(
        session.out / "model",
        judged.model,
        found.backbone,
        classifier,
        data=data_of(problem.name, [images]),
        config={"solve": _details(judged.setting)},
        epochs=judged.setting.get("steps", 0) * BATCH / len(problem.development),
        seed=session.runtime.seed,
    )
    return entry


def controls(session: Session, pixels: Judged, model: Model | None) -> list[Result]:
    """The results of raw pixels, and of the chosen network with random weights, on the held-back images."""
    nulls = [pixels]
    untrained = model and with_random_weights(model, seed=session.runtime.seed)
    if untrained is not None:
        nulls.append(judge_in_folds(session, untrained, f"random:{model.name}"))
    return [result_of(session, null, fit_and_score(session, null)[1]) for null in nulls]


def result_of(session: Session, judged: Judged, scores: np.ndarray) -> Result:
    """The result of logits (M, K) of the held-back images."""
    held_back = session.problem.held_back
    unit = str(held_back.classes[0])
    estimate, others, right = measure(scores, held_back.y, held_back.metric, held_back.groups, unit)
    about: dict[str, Any] = {}
    if right is not None:
        about = {
            "outcomes": right,
            "groups": held_back.groups,
            "largest": right_by_constant(held_back.y, session.problem.development.y),
            "paired_on": rows_digest(held_back.ids, held_back.y),
        }
    in_train = np.isin(held_back.pixel_digests, session.problem.development.pixel_digests)
    return Result.from_estimate(
        estimate,
        protocol=PROTOCOL,
        recipe=f"{judged.how}, on held-back images",
        metric=held_back.metric,
        model=judged.name,
        data=held_back.name,
        others=others,
        seeds=[session.runtime.seed],
        leaky=unseen.is_leaky(in_train),
        details={**_details(judged.setting), "how": judged.how, "multiply_adds": judged.model.multiply_adds},
        **about,
    )


def _details(setting: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in setting.items() if value is not None}
