"""Without labels: the network whose features know an image again best, and how little that says of a task."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from evaluation.features.untrained import with_random_weights
from evaluation.protocols.view_retrieval import Options, measure
from evaluation.results.decisions import decide
from evaluation.results.result import Result
from evaluation.results.tables import with_interval
from evaluation.solving.candidates import raw_pixels
from evaluation.solving.pretrained import LEAST, SHARE, newcomers, train
from evaluation.solving.session import SCORES, Session
from sslkit.backbones.words import PIXELS
from sslkit.decision import Decision
from sslkit.models.loading import name_of
from sslkit.models.model import Model

WORTH = (
    "this is how often an image is known again by another view of it; whether the features tell classes apart is not "
    "known: label some hundred images, and the same command decides by them"
)


@dataclass(frozen=True, eq=False)
class BestFeatures:
    """The answer without labels. results: of every candidate, then of the controls. checkpoint: the first candidate."""

    decision: Decision
    results: Sequence[Result]
    checkpoint: str


def compare_features(session: Session, candidates: Mapping[str, Model], methods: Sequence[str]) -> BestFeatures:
    """Judge networks, and new ones that are trained here, by finding the other view of images held back from these."""
    models = dict(candidates)
    if len(session.problem.pretrainable) >= LEAST:
        for newcomer in newcomers(list(methods), None):
            trained = train(session, newcomer, SHARE * session.budget.left)
            if trained is not None:
                models[trained[0].name] = trained[1]
    size = max(model.image_size for model in models.values())
    results = [_measure(session, name, model, size) for name, model in models.items()]
    first = max(results, key=lambda result: result.value).model
    untrained = with_random_weights(models[first], session.runtime.seed)
    nulls = {PIXELS: raw_pixels(session.problem)} | ({} if untrained is None else {f"random:{first}": untrained})
    results += [_measure(session, name, model, size) for name, model in nulls.items()]
    return BestFeatures(decide(results)[0], results, name_of(first, models[first]))


def _measure(session: Session, name: str, model: Model, size: int) -> Result:
    options = Options(view_size=size)
    key = session.key("views", model, **asdict(options))

    def work() -> Mapping[str, Any]:
        result = measure(model, session.problem.held_back, options, session.runtime)
        groups = None if result.groups is None else result.groups.tolist()
        return {"result": result.to_json(), "groups": groups, SCORES: result.outcomes}

    record = session.once(key, work)
    groups = None if record["groups"] is None else np.array(record["groups"])
    result = replace(Result.from_json(record["result"]), outcomes=record[SCORES].astype(bool), groups=groups)
    details = {**result.details, "multiply_adds": model.multiply_adds}
    session.runtime.say(f"views      {name}: {with_interval(result.estimate)} of {result.n:,} images found again")
    return replace(result, model=name, details=details)
