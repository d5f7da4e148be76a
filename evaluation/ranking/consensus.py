"""The consensus of several metrics: one order of the models, how likely each is the best, what taking it may cost.

found = consensus(names, scores, redrawn, accuracies)
found.best  # (M,) probability that each model fine-tunes best
found.shortlist()  # the fewest models that contain the best one with a probability of 90 %
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from evaluation.results.choice import level_scores
from evaluation.results.statistics import generator
from sslkit.backbones.words import is_null
from sslkit.decision import Candidate, Decision, Difference, list_names
from sslkit.numerics.ties import average_ranks

# Measured on models that were fine-tuned (recipes/benchmarks/ranking and constants.json). AGREEMENT: correlation of a
# metric's scores with the accuracy after fine-tuning, both as normal scores; the mean over the seven tasks of the study
# and the four of the first study, where that has the metric. A metric that is not here was not measured.
AGREEMENT = {
    "concept_variation": 0.14,
    "etran": 0.37,
    "etran_classification": 0.27,
    "etran_energy": 0.36,
    "feature_dim": 0.51,
    "gbc": 0.41,
    "h_score": 0.45,
    "h_score_regularized": 0.59,
    "interclass_distance": -0.02,
    "itm": 0.37,
    "kite": 0.37,
    "knn": 0.51,
    "lead": 0.35,
    "linear_probe": 0.46,
    "logme": 0.55,
    "ncti": 0.3,
    "nleep": 0.5,
    "pactran": 0.25,
    "param_count": -0.21,
    "parc": 0.47,
    "ped+gbc": 0.5,
    "ped+logme": 0.55,
    "ped+sfda": 0.22,
    "random": -0.02,
    "sfda": 0.3,
    "tmi": 0.34,
    "transrate": 0.39,
}
SPREAD = 0.51  # the best accuracy less the mean, after fine-tuning over that of kNN; the mean over eleven tasks
DRAWS = 2000  # at least, of images, metrics and fine-tuning: a probability of 0.5 has a standard error of 0.011
ROUNDS = 32  # of the noise of a draw over the models; more cost seconds for hundreds of models
SURE = 0.9  # probability of a shortlist: a convention; ten of eleven measurements held it (recipes/benchmarks/ranking)
CHANCES = (
    "P(best), the probability to be the best: how often the model comes first in simulated fine-tunings, whose order "
    "correlates with the ranking as measured for its metrics, and whose accuracies are "
    f"{SPREAD} times as far apart as those of kNN (means of 7 or 11 tasks of ours). Regret: points lost in them."
)
NO_CHANCES = "no P(best) and no regret, as the agreement with fine-tuning"


@dataclass(frozen=True)
class Null:
    """A control that a model must be above.

    differences: of each of M models to it, by leave-one-out kNN on the same images.
    """

    candidate: Candidate
    differences: Sequence[Difference]


@dataclass(frozen=True, eq=False)
class Consensus:
    """M models by the metrics that score all of them.

    metrics: their names; without any, all arrays are nan.
    score: (M,) mean normal score, higher is better; nan for a model that no metric scores. rank: (M,) 1 is best.
    best: (M,) probability that the model fine-tunes best of all; nan without scores or without `agreement`.
    regret: (M,) expected accuracy that is lost by taking this model instead of the best; nan without accuracies, too.
    agreement: correlation with fine-tuning that these rest on; nan if it was not measured for the metrics.
    """

    metrics: tuple[str, ...]
    score: np.ndarray
    rank: np.ndarray
    best: np.ndarray
    regret: np.ndarray
    agreement: float = math.nan

    @property
    def explanation(self) -> str:
        """How the probabilities come about, or why there are none; "" without a consensus."""
        if not np.isnan(self.best).all():
            return f"{CHANCES} Correlation here: {self.agreement:.2f}."
        if unknown := [name for name in self.metrics if name not in AGREEMENT]:
            return f"{NO_CHANCES} was not measured for {list_names(unknown)}"
        if self.agreement <= 0:
            return f"{NO_CHANCES} of {list_names(self.metrics)} was {self.agreement:.2f} where it was measured"
        return f"{NO_CHANCES} was measured for one class an image only" if self.metrics else ""

    def order(self) -> np.ndarray:
        """Return the models (M,) by expected regret, then by P(best), then by rank; models without a score last.

        What no model has decides nothing: without accuracies P(best) does, without probabilities the rank.
        """
        return np.lexsort((self.rank, level_scores(-self.best), level_scores(self.regret)))

    def shortlist(self, sure: float = SURE) -> list[int]:
        """Return the first models of the order that contain the best with probability `sure`."""
        if np.isnan(self.best).all():
            return []
        order = self.order()
        reached = np.cumsum(np.nan_to_num(self.best[order])) >= sure - 1e-9
        return order[: int(reached.argmax()) + 1].tolist()

    def first(self) -> list[int]:
        """Return the first model of the order, then those that share its rank; none without a consensus."""
        return self._level(self.order()[:1].tolist())

    def decision(self, models: Sequence[str], nulls: Sequence[Null] = (), costs: Sequence[float] = ()) -> Decision:
        """Return which of the models (M names) to take; those that share its rank, or are in the shortlist, may be as
        good. Without probabilities it is only the first. Raises IndexError without a consensus.

        nulls: what the first must be above. Models with random weights, and raw pixels, are not taken beside others.
        costs: multiply-adds of each, nan where they are not known; () where none is.
        """
        order = self.order().tolist()
        taken = [k for k in order if not is_null(models[k])] or order
        m, *level = self._level(taken[:1])
        tied = [k for k in dict.fromkeys([*level, *self.shortlist()]) if k != m]
        worse = [k for k in taken if k not in (m, *tied) and not np.isnan(self.best[k])]
        costs = costs or (math.nan,) * len(models)
        against = [(null.candidate, null.differences[m]) for null in nulls if null.candidate.name != models[m]]
        return Decision(
            Candidate(models[m], self._facts(m), costs[m]),
            [Candidate(models[k], cost=costs[k]) for k in tied],
            [Candidate(models[k]) for k in worse],
            [null for null, difference in against if difference.is_above],
            [(null, difference) for null, difference in against if not difference.is_above],
            decides=not np.isnan(self.best[m]),
        )

    def _level(self, first: list[int]) -> list[int]:
        """A model, then those that share its rank; none where it has none."""
        if not first or np.isnan(self.rank[first[0]]):
            return []
        return [*first, *(k for k in np.flatnonzero(self.rank == self.rank[first[0]]).tolist() if k != first[0])]

    def _facts(self, m: int) -> str:
        chance = "" if np.isnan(self.best[m]) else f"{100 * self.best[m]:.0f} % to be the best"
        lost = "" if np.isnan(self.regret[m]) else f"{100 * self.regret[m]:.1f} points expected to be lost"
        return ", ".join(filter(None, (chance, lost)))


def consensus(
    names: Sequence[str],
    scores: np.ndarray,
    redrawn: Sequence[np.ndarray] = (),
    accuracies: np.ndarray | None = None,
    *,
    agreement: float | None = None,
    spread: float = SPREAD,
    seed: int,
) -> Consensus:
    """Combine K metrics of M models.

    names: K names of the metrics. scores: (M, K), nan where a metric has none; metrics that lack a model which another
        one scores take no part, so that all models are compared by the same metrics.
    redrawn: of each metric (B, m) scores on B redrawn sets of images of the m models that it scores, or (0, m); nan
        where there are none. Empty for fixed images.
    accuracies: (M,) a cheap measurement of accuracy, here of leave-one-out kNN; nan for models without.
    agreement, spread: correlation of the normal scores of the consensus and of the models after fine-tuning, and the
        differences in accuracy after fine-tuning over those of `accuracies`. None: `agreement_of`. Without an
        agreement above 0 there are no probabilities.
    The score is the mean over the metrics of the normal score of the rank (van der Waerden): unlike mean ranks it
    keeps differences at the top, unlike standardised scores it is not carried by one outlier.
    Probabilities are a simulation: draw a set of images, weights of the metrics (Dirichlet, the Bayesian bootstrap),
    and the order after fine-tuning, whose normal scores correlate with the consensus by `agreement`. In each draw the
    models' accuracies are those of kNN, in that order, `spread` times as far apart.
    """
    m, scored = len(scores), ~np.isnan(scores).all(1)
    shapes = {"score": m, "rank": m, "best": m, "regret": m}
    estimates = {name: np.full(shape, np.nan) for name, shape in shapes.items()}
    chosen = [k for k in range(len(names)) if scored.any() and not np.isnan(scores[scored, k]).any()]
    if not chosen:
        return Consensus((), **estimates)
    columns = scores[np.ix_(scored, chosen)].T
    estimates["score"][scored] = mean = normal_scores(columns).mean(0)
    estimates["rank"][scored] = average_ranks(-level_scores(mean))
    drawn = _drawn(columns, [redrawn[k] for k in chosen] if redrawn else [], seed)
    names = tuple(names[k] for k in chosen)
    agreement = agreement_of(names) if agreement is None else agreement
    if not agreement > 0:
        return Consensus(names, **estimates, agreement=agreement)
    places = _places_after_fine_tuning(drawn, agreement, seed)
    estimates["best"][scored] = places[:, 0]
    if accuracies is not None and not np.isnan(accuracies[scored]).any():
        falling = -np.sort(-accuracies[scored])
        estimates["regret"][scored] = spread * (places @ (falling[0] - falling))
    return Consensus(names, **estimates, agreement=agreement)


def agreement_of(metrics: Sequence[str]) -> float:
    """Return the mean of what was measured for each metric; nan if one was not measured.

    The consensus of several agrees no less than they do on average (by 0.08 more, for two and three of the study).
    """
    return float(np.mean([AGREEMENT.get(name, math.nan) for name in metrics]))


def normal_scores(scores: np.ndarray) -> np.ndarray:
    """Return the normal scores (..., M) of the ranks of scores (..., M): quantiles of a normal at (rank - 1/2) / M.

    Scores that are equal up to rounding share their mean rank.
    """
    flat = scores.reshape(-1, scores.shape[-1])
    ranks = np.stack([average_ranks(level_scores(row)) for row in flat]) if len(flat) else flat
    return ndtri((ranks - 0.5) / scores.shape[-1]).reshape(scores.shape)


def within(groups: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return scores (..., M) as normal scores within each of several groups (M,); of one group as they are.

    So groups whose scores cannot be compared are level. nan stays nan.
    """
    if len(np.unique(groups)) < 2 or not scores.size:
        return scores
    normal = np.full(scores.shape, np.nan)
    for group in np.unique(groups):
        has_score = (groups == group) & ~np.isnan(scores).reshape(-1, scores.shape[-1]).all(0)
        if has_score.any():
            normal[..., has_score] = normal_scores(scores[..., has_score])
    return normal


def _drawn(scores: np.ndarray, redrawn: Sequence[np.ndarray], seed: int) -> np.ndarray:
    """Return consensus scores (draws, M) with redrawn images and metrics.

    scores: (K, M). redrawn: K of (B, M), none for fixed images.
    """
    count = max(map(len, redrawn), default=1) or 1
    columns = [_fill(redrawn[k] if redrawn else redrawn, column, count) for k, column in enumerate(scores)]
    normal = np.stack([normal_scores(column) for column in columns])
    weights = generator(seed, "consensus: metrics").dirichlet(np.ones(len(scores)), size=(-(-DRAWS // count), count))
    return np.einsum("rbk,kbm->rbm", weights, normal).reshape(-1, scores.shape[1])


def _fill(redrawn: Sequence, scores: np.ndarray, count: int) -> np.ndarray:
    """Return redrawn scores (count, M), the scores themselves for draws in which a model has none."""
    if not len(redrawn):
        return np.broadcast_to(scores, (count, len(scores)))
    return np.where(np.isnan(redrawn).any(1, keepdims=True), scores, redrawn)


def _places_after_fine_tuning(drawn: np.ndarray, agreement: float, seed: int) -> np.ndarray:
    """Return how often each model takes each place (M, M), the best one first, in simulated fine-tunings of each draw.

    drawn: (draws, M). The noise of a draw goes round the models, so that each has the same noise as often, up to
    ROUNDS: without it, models of equal scores would be ordered by the random numbers.
    """
    draws, m = drawn.shape
    noise = generator(seed, "consensus: fine-tuning").standard_normal(drawn.shape)
    apart = drawn.std(1, keepdims=True)
    standard = np.divide(drawn - drawn.mean(1, keepdims=True), apart, out=np.zeros_like(drawn), where=apart > 0)
    counts, rounds = np.zeros((m, m)), min(m, ROUNDS)
    for step in range(rounds):
        tuned = agreement * standard + np.sqrt(1 - agreement**2) * np.roll(noise, step * m // rounds, axis=1)
        order = np.argsort(-tuned, axis=1, kind="stable")
        counts += np.bincount((order * m + np.arange(m)).ravel(), minlength=m * m).reshape(m, m)
    return counts / (draws * rounds)
