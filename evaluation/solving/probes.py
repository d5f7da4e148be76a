"""Probes of frozen features: judged in folds of the known images, then fitted to all of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from evaluation.datasets import Split
from evaluation.features.extraction import features_of
from evaluation.learners.calibration import inverse_temperature
from evaluation.learners.cross_fit import cross_fit, folds_of
from evaluation.learners.linear_heads import Scaling
from evaluation.learners.linear_parts import Part
from evaluation.learners.ridge import fit_ridge, fit_strength
from evaluation.learners.strengths import SEARCH_ITER, SEARCH_TOL, fit, problem
from evaluation.results.measures import measure
from evaluation.results.statistics import Estimate
from evaluation.results.tables import with_interval
from evaluation.solving.session import SCORES, Session
from evaluation.tuning.classifier import classification_loss
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime
from sslkit.terminal.say import lasting

PROBE, TUNED = "probe", "fine-tuned"  # how a network is used


@dataclass(frozen=True, eq=False)
class Judged:
    """A network with a way of using it, on known images that its fit has not seen.

    name: as tables call it. how: PROBE or TUNED. estimate: the metric on the judged images.
    rows, scores: (n,) the images of `development` and (n, K) their logits, or numbers, of a probe.
    value: by the data set's metric, for comparisons; a tuned network's is that of its probe and what tuning gains.
    seconds: that judging took. setting: of the fit; its `beta` calibrates the logits; None of numbers.
    """

    name: str
    how: str
    model: Model
    development: Split
    rows: np.ndarray
    scores: np.ndarray | None
    estimate: Estimate
    value: float
    seconds: float
    setting: dict[str, Any]

    def estimate_on(self, rows: np.ndarray) -> Estimate:
        """The metric on those of the judged images that are among `rows`."""
        chosen = np.isin(self.rows, rows)
        return judge(self.scores[chosen], self.development, self.rows[chosen])

    def loss_on(self, rows: np.ndarray) -> float:
        """The calibrated cross-entropy, of numbers the squared error, on the judged images that are among `rows`."""
        chosen = np.isin(self.rows, rows)
        scores, y = (self.setting["beta"] or 1.0) * self.scores[chosen], self.development.y[self.rows[chosen]]
        return classification_loss(torch.from_numpy(scores), torch.from_numpy(y)).item()

    @property
    def line(self) -> str:
        gain = f", {100 * self.setting['gain']:+.1f} points by tuning" if "gain" in self.setting else ""
        value = f"{with_interval(self.estimate)} of {self.estimate.n:,} images"
        return f"{self.name}: {value}{gain}, {lasting(self.seconds)}"

    def __str__(self) -> str:
        return self.name if self.how == PROBE else f"{self.name}, {self.how}"


def judge_in_folds(session: Session, model: Model, name: str) -> Judged:
    """Judge a frozen network by a linear probe in folds of the known images; see `learners.cross_fit`."""
    labelled, runtime = session.problem.development, session.runtime

    def work() -> dict[str, Any]:
        features = features_of(model, labelled, session.reading, runtime)
        if labelled.has_numbers:
            folds = folds_of(features.y, features.ids, features.together, runtime.seed)
            ridge = fit_ridge(features.x, features.y, folds)
            rows = list(range(len(labelled)))
            return {"c": ridge.strength, "beta": None, "rows": rows, SCORES: ridge.held_out[:, None]}
        fitted = cross_fit(features.x, features.y, features.ids, labelled.groups, labelled.metric, runtime)
        beta = inverse_temperature(fitted.scores, labelled.y[fitted.rows])
        return {"c": fitted.c, "beta": beta, "rows": fitted.rows.tolist(), SCORES: fitted.scores}

    record = session.once(session.key(PROBE, model), work)
    rows, setting = np.array(record["rows"]), {name: record[name] for name in ("c", "beta")}
    scores = record[SCORES]
    estimate = judge(scores, labelled, rows)
    return Judged(name, PROBE, model, labelled, rows, scores, estimate, estimate.value, record["seconds"], setting)


def judge(scores: np.ndarray, split: Split, rows: np.ndarray) -> Estimate:
    """The metric of logits (n, K) of the images `rows` (n,) of a split, with its interval."""
    groups = None if split.groups is None else split.groups[rows]
    return measure(scores, split.y[rows], split.metric, groups, str(split.classes[0]))[0]


def linear_layer(x: np.ndarray, y: np.ndarray, rows: np.ndarray, c: float, runtime: Runtime) -> nn.Linear:
    """Fit a probe to some rows of standardised features, and return it for features as they are.

    x: (N, D). y: (N,) or (N, K). rows: (n,) int64. c: strength, see `sslkit.numerics.logistic`; of numbers that of a
    ridge, see `learners.ridge`.
    """
    if y.dtype.kind == "f":
        return fit_strength(x[rows], y[rows], c).layers[0]
    scaling = Scaling.measure(x, rows, "standardize")
    probe = fit(problem(Part(x, rows, y[rows]), scaling, runtime), c, tol=SEARCH_TOL, max_iter=SEARCH_ITER, start=None)
    weight = probe.weight / scaling.deviation
    layer = nn.utils.skip_init(nn.Linear, weight.shape[1], len(weight))
    layer.weight = nn.Parameter(torch.from_numpy(weight).float())
    layer.bias = nn.Parameter(torch.from_numpy(probe.bias - weight @ scaling.mean).float())
    return layer
