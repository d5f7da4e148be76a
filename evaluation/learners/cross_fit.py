"""A linear probe in folds: every training image is judged by a probe that has not seen it, and so is the penalty.

fitted = cross_fit(x, y, ids, groups, runtime)
fitted.scores  # (N, K) logits of each image, by the probe of the other folds
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from evaluation.learners.linear_heads import Scaling
from evaluation.learners.linear_parts import Part
from evaluation.learners.strengths import SEARCH_ITER, SEARCH_TOL, best, fit, has_passed_best, problem, scores_of
from sslkit.data.held_out import draw_folds
from sslkit.numerics.logistic import Probe
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import seed_of

FOLDS = 5  # as usual: each probe learns from four fifths
MOST = 2**28  # numbers of all folds' rows, 1 GiB: of more, a single fifth is judged
# c = 1 / lambda, from 1e-5 to 1e3 in steps of 3.2: finer ones move an accuracy within its noise
STRENGTHS = tuple(10.0 ** (half / 2) for half in range(-10, 7))
ABSENT = 10.0  # logits below an image's lowest one, for a class that its fold has not learned: a probability near 0


@dataclass(frozen=True, eq=False)
class CrossFit:
    """scores: (n, K) float64, the logits of the judged images. rows: (n,) int64 of these.

    c: the strength of the highest metric over them; of equal ones that of the lowest cross-entropy, then the strongest
    penalty. tried: {strength: (metric, cross-entropy)}.
    """

    scores: np.ndarray
    rows: np.ndarray
    c: float
    tried: dict[float, tuple[float, float]]


def cross_fit(
    x: np.ndarray, y: np.ndarray, ids: Sequence[str], groups: np.ndarray | None, metric: str, runtime: Runtime
) -> CrossFit:
    """Fit standardised features in folds, for each strength of the penalty, and keep the best, as `linear_probe` does.

    x: (N, D). y: (N,) int64 labels 0 to K - 1, or (N, K) of 1, -1, 0 (does not count). ids: (N,) names. groups: (N,)
    of images that stay in one fold; None: each stands alone. metric: see `evaluation.results.measures`. The folds
    depend on the seed and the names alone.
    Of more than `MOST` numbers a single fold is judged.
    The choice of one strength by all judged images makes their scores a little too good, by as much for every model.
    """
    classes = y.shape[1] if y.ndim == 2 else int(y.max()) + 1
    number = folds_of(y, ids, groups, runtime.seed)
    judged = range(FOLDS if (FOLDS - 1) * x.size <= MOST else 1)
    folds = [_Fold(x, y, number, fold, runtime) for fold in judged]
    rows = np.concatenate([fold.judge.rows for fold in folds])
    all_scores, tried, judge = [], {}, Part(x, rows, y[rows])
    for c in map(float, STRENGTHS):
        all_scores.append(np.concatenate([fold.judge_at(c, classes) for fold in folds]))
        tried[c] = judge.value(all_scores[-1], metric), judge.loss(all_scores[-1], metric)
        values, losses = zip(*tried.values(), strict=True)
        if has_passed_best(values, losses, len(rows)):
            break
    chosen = best(values, losses.__getitem__, [1 / c for c in tried])
    order = np.argsort(rows, kind="stable")
    return CrossFit(all_scores[chosen][order], rows[order], list(tried)[chosen], tried)


def folds_of(y: np.ndarray, ids: Sequence[str], groups: np.ndarray | None, seed: int) -> np.ndarray:
    """Return the fold (N,) of each image: those of a class are dealt in turn, in a random order of the names."""
    order = np.argsort(np.asarray(ids).astype(str), kind="stable")
    labels = y if y.ndim == 1 and y.dtype.kind != "f" else np.zeros(len(y), np.int64)
    drawn = torch.Generator().manual_seed(seed_of("folds of a probe", seed))
    units = None if groups is None else torch.from_numpy(np.asarray(groups)[order])
    number = np.empty(len(y), np.int64)
    number[order] = draw_folds(torch.from_numpy(labels[order]), FOLDS, drawn, units).numpy()
    return number


class _Fold:
    """The probes of one fold, from the strongest penalty on."""

    def __init__(self, x: np.ndarray, y: np.ndarray, number: np.ndarray, fold: int, runtime: Runtime) -> None:
        learned, judged = np.flatnonzero(number != fold), np.flatnonzero(number == fold)
        self.learn, self.judge = Part(x, learned, y[learned]), Part(x, judged, y[judged])
        self.scaling = Scaling.measure(x, learned, "standardize")
        self.problem = problem(self.learn, self.scaling, runtime)
        self.probe: Probe | None = None

    def judge_at(self, c: float, classes: int) -> np.ndarray:
        """Return logits (n, K) of the judged images for a strength."""
        how = {"tol": SEARCH_TOL, "max_iter": SEARCH_ITER}
        self.probe = fit(self.problem, c, start=self.probe, **how)
        scores = scores_of(self.probe, self.judge, self.scaling)
        if scores.shape[1] == classes:
            return scores
        whole = np.repeat(scores.min(1, keepdims=True) - ABSENT, classes, 1)
        whole[:, self.probe.classes] = scores
        return whole
