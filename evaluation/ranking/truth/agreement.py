"""Agreement of scores with the ground truth: rank correlations, and the regret of selecting by score.

for found in evaluation.agreement.agreement(truth, scores):
    print(found)  # weighted tau (Vigna) 0.752 [0.41, 0.93], 10 models
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import comb
from typing import Any

import numpy as np

from evaluation.results.choice import level_scores
from evaluation.results.statistics import generator, interval_of
from sslkit.errors import UserError
from sslkit.runtime.context import Computing

Values = Sequence[float] | Mapping[str, float]


@dataclass(frozen=True)
class Agreement:
    """One measure of agreement between scores and truth.

    name: of the measure, with the kind for a tau. interval: 95 %, for other models of the same kind; None for fewer
    than `FEWEST` models, for choices ("@k"), or if too few draws have a value. n: models.
    """

    name: str
    value: float
    interval: tuple[float, float] | None
    n: int

    @property
    def kind(self) -> str:
        """Return the interval in words, or why there is none and how many models it takes."""
        if self.interval is not None:
            return "bootstrap over models"
        if self.name not in FEWEST:
            return "no interval: one set of models is one choice, so it takes other sets"
        if self.n < FEWEST[self.name]:
            return f"no interval, {self.n} models: it takes about {FEWEST[self.name]}"
        return "no interval: none was drawn, or the draws have no value"

    def __str__(self) -> str:
        ends = "" if self.interval is None else " [{:.3f}, {:.3f}]".format(*self.interval)
        return f"{self.name} {self.value:.3f}{ends}, {f'{self.n} models' if self.interval else self.kind}"


def weighted_tau(truth: Values, scores: Values, kind: str = "vigna") -> float:
    """Return Kendall's tau, optionally with higher weights for pairs of good models. -1 to 1.

        evaluation.weighted_tau([0.91, 0.88, 0.70], [1.3, 1.1, 0.2])  # truth, scores: 1.0

    truth, scores: (M,) accuracies and scores of the same models, higher is better. kind: one of these three.

    "vigna": scipy.stats.weightedtau, which the papers of LogME, SFDA, PED and ETran report; pairs are weighted by
        1 / rank of each, ranks by truth and by scores. nan if either is constant.
    "itm": eq. 1 of ITM: weights 1 / (G_i + G_j), G the rank by truth, 1 for the best. A tie adds 0 above
        and its weight below.
    "kendall": tau-a, equal weights: eq. 1 of PED as printed.
    Raises UserError for different lengths, fewer than two models, NaN and infinity (like all functions here).
    """
    if kind not in TAUS:
        raise UserError(f"weighted_tau kind={kind!r} must be one of {', '.join(TAUS)}")
    return _apply(TAUS[kind], truth, scores)


def spearman(truth: Values, scores: Values) -> float:
    """Return Pearson's correlation of the ranks, ties at their mean rank. nan if either is constant."""
    return _apply(_spearman, truth, scores)


def agreement(
    truth: Values, scores: Values, *, measures: Sequence[str] | None = None, n: int = 1000, seed: int = Computing.seed
) -> list[Agreement]:
    """Return every measure with its interval, from n bootstrap draws of the models.

    truth, scores: (M,) numbers, or mappings with the same models' names. measures: some of `MEASURES`, by default all
        except "@k" with k >= M, which are trivial.
    A model drawn twice is no pair with itself. Draws without a value (all the same model) are left out, and there is
    no interval if they are more than half, for fewer models than `FEWEST`, and for "@k": a bootstrap holds the
    expected regret and recall of other sets of models in 20 to 93 % (simulated), with any number of models.
    """
    t, s = _pair_up(truth, scores)
    if n < 0:
        raise UserError(f"n={n} draws of the models: give at least 0")
    for name in measures or ():
        if name not in MEASURES:
            raise UserError(f"there is no measure of agreement {name!r}: {', '.join(MEASURES)}")
    names = measures or [name for name in MEASURES if "@" not in name or int(name.rpartition("@")[2]) < len(t)]
    rng = generator(seed, "agreement")
    draws = rng.integers(len(t), size=(n, len(t)))
    return [_estimate(name, t, s, draws) for name in names]


def _estimate(name: str, truth: np.ndarray, scores: np.ndarray, draws: np.ndarray) -> Agreement:
    measure, everyone = MEASURES[name], np.arange(len(truth))
    value = float(measure(truth, scores, everyone))
    return with_interval(name, value, lambda rows: measure(truth[rows], scores[rows], rows), draws)


def with_interval(name: str, value: float, of_rows: Callable[[np.ndarray], float], draws: np.ndarray) -> Agreement:
    """Return an agreement with its interval over models, see `agreement`. draws: (n, M) models of each draw."""
    models = draws.shape[1]
    if not np.isfinite(value) or models < FEWEST.get(name, np.inf):
        return Agreement(name, value, None, models)
    drawn = np.array([of_rows(rows) for rows in draws], dtype=float)
    sound = drawn[np.isfinite(drawn)]
    enough = len(sound) and 2 * len(sound) >= len(drawn)
    return Agreement(name, value, interval_of(sound, models) if enough else None, models)


def _vigna(truth: np.ndarray, scores: np.ndarray, models: np.ndarray) -> float:
    from scipy.stats import weightedtau

    if _constant(truth) or _constant(scores):
        return float("nan")
    plain = inspect.unwrap(weightedtau)  # without scipy's handling of NaN and axes, which takes four fifths of the time
    return float(plain(truth, scores).statistic)


def _kendall(truth: np.ndarray, scores: np.ndarray, models: np.ndarray) -> float:
    return _pair_mean(truth, scores, (models[:, None] != models).astype(float))


def _itm(truth: np.ndarray, scores: np.ndarray, models: np.ndarray) -> float:
    rank = _ranks(-truth)
    return _pair_mean(truth, scores, (models[:, None] != models) / (rank[:, None] + rank))


def _pair_mean(truth: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> float:
    """Return the mean over pairs of +1 in order, -1 reversed, 0 tied; nan without a pair of different models."""
    total = weights.sum()
    signs = np.sign(truth[:, None] - truth) * np.sign(scores[:, None] - scores)
    return float((weights * signs).sum() / total) if total else float("nan")


def _pearson(truth: np.ndarray, scores: np.ndarray, models: np.ndarray) -> float:
    if _constant(truth) or _constant(scores):
        return float("nan")
    t, s = ((values - values.mean()) / np.abs(values - values.mean()).max() for values in (truth, scores))
    return float(np.clip(t @ s / (np.sqrt(t @ t) * np.sqrt(s @ s)), -1, 1))


def _spearman(truth: np.ndarray, scores: np.ndarray, models: np.ndarray) -> float:
    return _pearson(_ranks(truth), _ranks(scores), models)


def _regret(truth: np.ndarray, scores: np.ndarray, models: np.ndarray, k: int) -> float:
    values, chances = _best_of_top(truth, scores, models, k)
    return float(truth.max() - values @ chances)


def _recall(truth: np.ndarray, scores: np.ndarray, models: np.ndarray, k: int) -> float:
    values, chances = _best_of_top(truth, scores, models, k)
    return float(chances[values == truth.max()].sum())


def _relative(truth: np.ndarray, scores: np.ndarray, models: np.ndarray, k: int) -> float:
    values, chances = _best_of_top(truth, scores, models, k)
    best = truth.max()
    return float(values @ chances / best) if best > 0 else float("nan")


def _best_of_top(truth: np.ndarray, scores: np.ndarray, models: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return possible values of the best truth among the k highest scores, and their probabilities from ties."""
    first = np.unique(models, return_index=True)[1]
    truth, scores = truth[first], scores[first]
    k = min(k, len(truth))
    threshold = np.sort(scores)[-k]
    sure = truth[scores > threshold]
    tied = np.sort(truth[scores == threshold])[::-1]
    slots = k - len(sure)
    chances = [comb(len(tied) - j - 1, slots - 1) / comb(len(tied), slots) for j in range(len(tied))]
    floor = sure.max() if len(sure) else -np.inf
    return np.maximum(tied, floor), np.array(chances)


# Models from which the interval holds the value for other models in 92 %: correlations of 0 to 0.9, simulated.
FEWEST = {
    "weighted tau (Vigna)": 8,
    "weighted tau (ITM)": 8,
    "Kendall tau-a": 8,
    "Spearman": 8,
    "Pearson": 20,
}
TAUS: dict[str, Callable[..., float]] = {"vigna": _vigna, "itm": _itm, "kendall": _kendall}
MEASURES: dict[str, Callable[..., float]] = {
    "weighted tau (Vigna)": _vigna,
    "weighted tau (ITM)": _itm,
    "Kendall tau-a": _kendall,
    "Spearman": _spearman,
    "Pearson": _pearson,
    "regret@1": partial(_regret, k=1),
    "regret@3": partial(_regret, k=3),
    "recall@1": partial(_recall, k=1),
    "recall@3": partial(_recall, k=3),
    "rel@1": partial(_relative, k=1),
    "rel@3": partial(_relative, k=3),
}


def _apply(measure: Callable[..., float], truth: Values, scores: Values) -> float:
    t, s = _pair_up(truth, scores)
    return float(measure(t, s, np.arange(len(t))))


def _constant(values: np.ndarray) -> bool:
    return bool((values == values[0]).all())


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 1 for the lowest, ties at their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _pair_up(truth: Values, scores: Values) -> tuple[np.ndarray, np.ndarray]:
    """Return truth and scores (M,) in the same order; numbers equal up to rounding are made equal."""
    if isinstance(truth, Mapping) != isinstance(scores, Mapping):
        raise UserError("give truth and scores both by the models' names, or both as numbers in the same order")
    if isinstance(truth, Mapping):
        odd = sorted(set(truth) ^ set(scores))
        if odd:
            raise UserError(f"these models are in only one of truth and scores: {', '.join(odd)}")
        truth, scores = list(truth.values()), [scores[name] for name in truth]
    t, s = _numbers(truth, "truth"), _numbers(scores, "scores")
    if len(t) != len(s):
        raise UserError(f"{len(t)} models in truth and {len(s)} in scores")
    if len(t) < 2:
        raise UserError(f"agreement needs at least 2 models, not {len(t)}")
    return level_scores(t), level_scores(s)


def _numbers(values: Any, where: str) -> np.ndarray:
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where} must be (M,) numbers, one a model: {error}") from error
    if array.ndim != 1:
        raise UserError(f"{where} must be (M,) numbers, one a model, not of shape {array.shape}")
    if not np.isfinite(array).all():
        k = int(np.flatnonzero(~np.isfinite(array))[0])
        raise UserError(f"{where} of model {k} is {array[k]}: leave the model out of both")
    return array
