"""Are the classes told apart by a linear layer on frozen features? The linear probe.

Recipe "lbfgs" is that of Ericsson et al. 2021 (arXiv 2011.13377): logistic regression with an L2 penalty, its strength
chosen among 45 values on a held-out part of the training images, then fitted to all of them. They are searched coarse
to fine (`evaluation.learners.strengths`). Recipe "grid" is DINOv2's (Oquab et al. 2023, arXiv 2304.07193), for data
sets as large as ImageNet.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn
from tqdm import tqdm

from evaluation.features.table import Features, match_labels
from evaluation.learners.calibration import inverse_temperature
from evaluation.learners.linear_heads import SCALES, Grid, Scaling, judge_heads, train_heads
from evaluation.learners.linear_parts import Parts, parts_of
from evaluation.learners.strengths import STRENGTHS, STRIDE, Tried, best, best_of, fit, problem, scores_of, search
from evaluation.protocols import linear_aug
from evaluation.protocols._linear_options import LBFGS, Options, check_on_features, check_together
from evaluation.protocols._scored import HELD_OUT, at_edge, number_of, result_of_scores
from evaluation.protocols.base import Subject, Terminal, among
from evaluation.results.result import Result
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of
from sslkit.terminal import say

SHARE = {"lbfgs": 0.2, "grid": HELD_OUT}  # held-out share of the training images


@dataclass(frozen=True, eq=False)
class Fitted:
    """A linear classifier of features.

    layers: features (N, D) -> scores (N, K) of the classes that occur in train. classes: their names.
    scores: (M, K) of the test rows, and y: their labels, in the order of their names. beta: inverse temperature by the
    rows that chose it; None where none did. converged, details: see `Result`.
    """

    layers: nn.Sequential
    classes: tuple[str, ...]
    scores: np.ndarray
    y: np.ndarray
    beta: float | None
    converged: bool | None
    details: dict[str, Any]


@public("seed", "device", "progress")
def linear_probe(train: Any, test: Any, *, val: Any = None, options: Options, runtime: Runtime) -> Result:
    """Train a linear classifier on the training features; return its metric (top1, mean_per_class, map11) on test.

        train, test = (evaluation.extract("runs/zoo/NAME", "digits", split) for split in ("train", "test"))
        evaluation.linear_probe(train, test).value  # a fraction

    train, test, val: Features or pairs (x: (N, D), y: (N,), or (N, K) of 1, -1, 0 (ignored)).
    val: validation rows; None: 20 % (lbfgs) or 10 % (grid) of each class of train, drawn by (seed, name).
    A result is `leaky` with select="test", and with more than 1 % of test in train or val: details["in_train"]. Without
    these images the metric stands in `others` (see `evaluation.results.unseen`).

    lbfgs minimises 1/2 |W|^2 + c * sum CE. Ties between values of c go to the lowest validation cross-entropy, then to
    the strongest penalty. The final fit is on train and val together (see `fit_logistic`); `converged` is True if tol
    was reached. The optimum is unique: the seed changes only the validation rows.

    grid trains a head for each learning rate and weight decay of `grid`; the best on validation, with the same
    tie-breaks, is the classifier, without a second fit. The seed also sets the order of the batches.

    Raises UserError for invalid features, test or val classes that train lacks, fewer than two classes, too few rows
    to hold any out, and options out of range or of the other recipe.
    """
    return fit_probe(train, test, options, runtime, val)


def fit_probe(train: Any, test: Any, options: Options, runtime: Runtime, val: Any = None) -> Result:
    """The result of `linear_probe`."""
    return fit_classifier(train, test, options, runtime, val)[0]


def fit_classifier(train: Any, test: Any, options: Options, runtime: Runtime, val: Any = None) -> tuple[Result, Fitted]:
    """The result of `linear_probe`, and its classifier."""
    start = time.perf_counter()
    check_on_features(options.recipe)
    check_together(options)
    train, test = match_labels(train, test)
    if val is not None:
        val = match_labels(train, val)[1]
        _warn_of_doubles(train, val)
    recipe, seed, scale = options.resolve_recipe(len(train)), runtime.seed, options.scale
    runtime = replace(runtime, device=str(device_of(runtime.device)))
    share = SHARE[recipe]
    parts = parts_of(train, val, test, share=share, seed=seed, select=options.select, choose=options.c is None)
    fitted = _lbfgs(parts, options, runtime) if recipe == "lbfgs" else _grid(parts, options.heads(), scale, runtime)
    fitted = replace(fitted, classes=tuple(train.classes[label] for label in parts.labels))
    drawn = parts.chosen_by == "held-out train" or recipe == "grid"
    result = result_of_scores(
        {"train": train, "test": test} | ({} if val is None else {"val": val}),
        parts,
        fitted.scores,
        protocol="linear",
        recipe=f"{recipe} on frozen features, {SCALES[scale]}",
        seeds=[seed] if drawn else [],
        seconds=time.perf_counter() - start,
        converged=fitted.converged,
        details={"scale": scale, "chosen_by": parts.chosen_by, "device": runtime.device, **fitted.details},
    )
    return result, fitted


def open(subject: Subject, options: Options) -> Subject:
    """Check labels and mutually exclusive options before feature extraction. Raises UserError."""
    check_together(options)
    subject.check_train_and_test("linear", several=True)
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """Run the linear probe of a subject; official validation images are part of its training images."""
    check_together(options)
    if options.recipe in linear_aug.RECIPES:
        return linear_aug.run(opened, linear_aug.Options(recipe=options.recipe, epochs=options.epochs), runtime)
    return [fit_probe(opened.train(runtime), opened.test(runtime), options, runtime)]


def beside(result: Result) -> tuple[str, ...]:
    """The area under the precision-recall curve, beside 11 points of it."""
    return among(result, "map")


terminal = Terminal(classifies=True)


def _lbfgs(parts: Parts, options: Options, runtime: Runtime) -> Fitted:
    """Select the strength, then fit it to all rows."""
    scale = options.scale
    tol, max_iter = (LBFGS[name] if (value := getattr(options, name)) is None else value for name in LBFGS)
    learned = Scaling.measure(parts.learn.x, parts.learn.rows, scale)
    tried = [] if options.c is not None else _try_strengths(parts, learned, runtime, max_iter)
    chosen = tried[best_of(tried)].probe if tried else None
    beta = chosen and inverse_temperature(scores_of(chosen, parts.judge, learned), parts.judge.y)
    c = float(chosen.c if options.c is None else options.c)
    scaling = Scaling.measure(parts.full.x, parts.full.rows, scale)
    probe = fit(problem(parts.full, scaling, runtime), c, tol=tol, max_iter=max_iter, start=chosen)
    details = {
        "c": c,
        "lambda": 1 / c,
        "objective": probe.objective,
        "gap": probe.gap,
        "gradient_norm": probe.gradient_norm,
        "n_iter": probe.n_iter,
        "tol": tol,
        "rows": len(parts.full.rows),
        "at_edge": bool(tried) and c in (STRENGTHS[0], STRENGTHS[-1]),
        "note": "the optimum is unique: a seed changes only which rows it is chosen by",
        "tried": [attempt.details() for attempt in tried],
    }
    layers = scaling.fold(probe.weight, probe.bias)
    return Fitted(layers, (), scores_of(probe, parts.test, scaling), parts.test.y, beta, probe.converged, details)


def _try_strengths(parts: Parts, scaling: Scaling, runtime: Runtime, max_iter: int) -> list[Tried]:
    """The strengths that were tried, the strongest penalty first."""
    attempts = search(parts.learn, parts.judge, scaling, parts.metric, runtime, max_iter, STRENGTHS)
    most = len(STRENGTHS[::STRIDE]) + 2 * (STRIDE - 1)
    bar = tqdm(attempts, "strengths", most, leave=False, disable=None if runtime.progress else True)
    return sorted(bar, key=lambda one: one.probe.c)


def _grid(parts: Parts, grid: Grid, scale: str, runtime: Runtime) -> Fitted:
    """Train all heads at once and select the best on validation."""
    learn, judge, test = parts.learn, parts.judge, parts.test
    scaling = Scaling.measure(learn.x, learn.rows, scale)
    [heads] = train_heads(learn.x, learn.rows, learn.y, parts.classes, grid, scaling, runtime)
    values = judge_heads(heads, judge.x, judge.rows, judge.y, parts.metric)
    penalties = [(decay, -lr) for lr, decay in grid.heads()]  # at equal decay the smaller rate stays closer to 0
    chosen = best(values, lambda head: judge.loss(heads.scores_of(head, judge.x, judge.rows), parts.metric), penalties)
    settings = [{"lr": lr, "weight_decay": decay} for lr, decay in grid.heads()]
    tried = [{**setting, "value": number_of(value)} for setting, value in zip(settings, values, strict=True)]
    details = {
        **settings[chosen],
        "iterations": grid.iterations,
        "batch_size": grid.rows_a_step(len(learn.rows)),
        "rows": len(learn.rows),
        "at_edge": at_edge(settings[chosen]["lr"], grid),
        "tried": tried,
    }
    weight, bias = (values[chosen].double().cpu().numpy() for values in (heads.weight, heads.bias))
    beta = None
    if parts.chosen_by != "test":
        beta = inverse_temperature(heads.scores_of(chosen, judge.x, judge.rows), judge.y)
    scores = heads.scores_of(chosen, test.x, test.rows)
    return Fitted(scaling.fold(weight, bias), (), scores, test.y, beta, None, details)


def _warn_of_doubles(train: Features, val: Features) -> None:
    if doubles := int(np.isin(val.images, train.images).sum()):
        say.warn(
            f"{doubles} of the {len(val)} validation images are in train too: they favour the weakest penalty, and "
            "count twice in the final fit",
            stacklevel=3,
        )
