"""The linear probe: how well a linear classifier of frozen features does.

Recipe "lbfgs" is that of Ericsson et al. 2021 (arXiv 2011.13377): logistic regression with an L2 penalty, its strength
chosen among 45 values on a held-out part of the training images, then fitted to all of them. Recipe "grid" is DINOv2's
(Oquab et al. 2023, arXiv 2304.07193), for data sets of ImageNet's size.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tqdm import tqdm

from evaluation.features import Features, matched
from evaluation.linear_heads import LEARNING_RATES, SCALES, Grid, Scaling, accuracy, judge_heads, train_heads
from evaluation.logistic import Probe, fit_one_vs_rest, fit_path
from evaluation.measures import map11, measured
from evaluation.result import Result, rows_digest
from evaluation.splits import held_out
from evaluation.statistics import mean_per_class
from evaluation.subject import Subject
from sslkit.errors import UserError
from sslkit.members import nearest

RECIPES = ("auto", "lbfgs", "grid")
SELECT = ("held_out", "test")
PENALTIES = np.logspace(5, -6, 45)  # lambda = 1 / c, the strongest first
MANY = 200_000  # rows from which "auto" takes "grid"
SHARE = {"lbfgs": 0.2, "grid": 0.1}  # of the training images, held out to choose by
SEARCH_TOL, SEARCH_ITER = 1e-4, 1000


@dataclass(frozen=True)
class _Rows:
    """Some rows of features: x[rows] with labels y, in the order of their names. y: (n,) or (n, K)."""

    x: np.ndarray
    rows: np.ndarray
    y: np.ndarray

    def scaled(self, scaling: Scaling) -> np.ndarray:
        return scaling(self.x[self.rows])


@dataclass(frozen=True)
class _Job:
    """What to fit, checked. choose_on: the rows to choose by; learn: those to learn from meanwhile; full: at last."""

    learn: _Rows
    choose_on: _Rows | None
    full: _Rows
    test: _Rows
    classes: int
    metric: str


def linear_probe(
    train: Any,
    test: Any,
    *,
    val: Any = None,
    recipe: str = "auto",
    scale: str = "standardize",
    c: float | None = None,
    select: str = "held_out",
    seed: int = 0,
    tol: float = 1e-6,
    max_iter: int = 2000,
    learning_rates: Sequence[float] = LEARNING_RATES,
    weight_decays: Sequence[float] = (0.0,),
    iterations: int = 12500,
    batch_size: int = 1024,
    device: str = "auto",
    progress: bool = True,
) -> Result:
    """The metric of the test set (top1, mean_per_class or map11) of a linear classifier of the training features.

    train, test, val: Features or pairs (x: (N, D), y: (N,), or (N, K) of 1, -1, 0 (does not count)).
    val: rows to choose by; else 20 % (lbfgs) or 10 % (grid) of each class of train, drawn by (seed, name).
    recipe: "lbfgs", "grid", or "auto": lbfgs for less than 200,000 rows.
    scale: "standardize" by the rows that are learned from, "l2" or "none".
    select: "held_out", or "test" to reproduce numbers chosen on the test images: the result is `leaky`.

    lbfgs minimises 1/2 |W|^2 + c * sum CE. c: its value; None: of 45 from 1e-5 to 1e6 in equal ratios (lambda = 1 / c
    from 1e5 to 1e-6) the one that is best on the rows to choose by, of equal ones the smallest, then fitted to train
    and val together. tol, max_iter: of that last fit (see `fit_logistic`), `converged` says whether tol was reached.
    The optimum is unique: a seed changes nothing but the rows to choose by.

    grid trains a head for each of learning_rates x weight_decays (see `Grid`) for `iterations` batches of
    `batch_size`; the best on the rows to choose by is the classifier, without a second fit.
    learning_rates, weight_decays, iterations, batch_size: of "grid" alone. c, tol, max_iter: of "lbfgs" alone.

    Raises UserError for bad features, test or val classes that train lacks, fewer than two classes, nothing that can
    be held out, and options out of range.
    """
    start = time.perf_counter()
    for name, given, known in (("recipe", recipe, RECIPES), ("select", select, SELECT), ("scale", scale, SCALES)):
        if given not in known:
            raise UserError(f"there is no {name} {given!r}: {nearest(str(given), known)}")
    train, test = matched(train, test)
    val = None if val is None else matched(train, val)[1]
    if recipe == "auto":
        recipe = "lbfgs" if len(train) < MANY or c is not None else "grid"
    if recipe == "grid" and c is not None:
        raise UserError(f"c={c} is an option of recipe=lbfgs; the strengths of recipe=grid are its weight_decays")
    chosen_by = "given" if c is not None else "test" if select == "test" else "held-out train" if val is None else "val"
    job = _job(train, val, test, chosen_by, SHARE[recipe], seed)
    if recipe == "lbfgs":
        scores, converged, details = _lbfgs(job, c, scale, tol, max_iter, device, progress)
    else:
        grid = Grid(tuple(learning_rates), tuple(weight_decays), iterations, batch_size, seed)
        scores, converged, details = _grid(job, grid, scale, device, progress)
    return _result(
        (train, val, test),
        job,
        scores,
        recipe=f"{recipe} on frozen features, {SCALES[scale]}",
        seeds=[seed] if chosen_by == "held-out train" or recipe == "grid" else [],
        converged=converged,
        leaky=chosen_by == "test",
        details={"scale": scale, "chosen_by": chosen_by, **details},
        start=start,
    )
