"""Results and unfinished files of the probes that learn from all training images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.datasets import LABELLED
from evaluation.features.extraction import CROPPED, LOADED
from evaluation.features.table import Features
from evaluation.learners.linear_heads import Grid
from evaluation.learners.linear_parts import Parts
from evaluation.results import unseen
from evaluation.results.class_means import mean_per_class
from evaluation.results.measures import measure, right_by_largest
from evaluation.results.result import Result, rows_digest
from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.recorded import checkpoint_of
from sslkit.data.copies import near_in_train
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime
from sslkit.runtime.distributed import rank

SHARED = (*LOADED, *LABELLED, *CROPPED, "on_error", "precision", "batch_size", "device", "workers", "seed", "progress")
SHARED += ("out", "save_seconds")
HELD_OUT = 0.1  # of the training images, by which a grid is chosen: DINOv2's and CAPI's


def result_of_scores(
    given: Mapping[str, Features],
    parts: Parts,
    scores: np.ndarray,
    *,
    protocol: str,
    recipe: str,
    seeds: list[int],
    seconds: float,
    details: Mapping[str, Any],
    converged: bool | None = None,
) -> Result:
    """Return the result of a classifier's scores (M, K) of the test rows, in the order of their names.

    given: the features by their use, "test" and those that were learned from.
    """
    test, metric = given["test"], parts.metric
    learned = [given[name] for name in given if name != "test"]
    near = near_in_train([features.likeness for features in learned], test.likeness)
    in_train = np.isin(test.images, np.concatenate([features.images for features in learned]))
    y, groups = parts.test.y, unseen.take(test.groups, parts.test.rows)
    estimate, others, right = measure(scores, y, metric, groups)
    sorted_in_train = in_train[parts.test.rows]
    others |= unseen.beside(
        sorted_in_train, lambda rows: measure(scores[rows], y[rows], metric, unseen.take(groups, rows))[0]
    )
    if metric == "top1":
        others["mean_per_class"] = mean_per_class(right, y, groups)
    outcomes = None
    if right is not None:
        outcomes = np.empty(len(right), bool)
        outcomes[parts.test.rows] = right  # in the given order of the test rows
    return Result.from_estimate(
        estimate,
        protocol=protocol,
        recipe=recipe,
        metric=metric,
        model=test.model,
        data=test.data,
        others=others,
        seeds=seeds,
        digests={name: features.digest for name, features in given.items()},
        converged=converged,
        leaky=parts.chosen_by == "test" or unseen.is_leaky(in_train),
        seconds=seconds,
        details={**unseen.details(in_train, near), **details},
        outcomes=outcomes,
        groups=None if outcomes is None else test.groups,
        largest=None if outcomes is None else right_by_largest(test.y),
        paired_on="" if outcomes is None else rows_digest(test.ids, test.y),
    )


def checkpoint_file(protocol: str, key: Mapping[str, Any], runtime: Runtime) -> Checkpoint | None:
    """Return the file of a training that is not finished, in the folder of results; None where nothing is kept."""
    if runtime.out is None or rank() > 0:
        return None
    return checkpoint_of(Path(runtime.out) / f"{protocol}.jsonl", {**key, "seed": runtime.seed}, runtime.save_seconds)


def require_finite(scores: np.ndarray, protocol: str, lr: float) -> None:
    """Raises UserError for scores of a final fit that diverged."""
    if not np.isfinite(scores).all():
        raise UserError(f"{protocol}: the fit to all training images diverged at learning rate {lr:g}: give lower ones")


def at_edge(lr: float, grid: Grid) -> bool:
    """Return whether a rate is an end of several."""
    return len(set(grid.learning_rates)) > 1 and lr in (min(grid.learning_rates), max(grid.learning_rates))


def number_of(value: float) -> float | None:
    """Return a value of a setting that was tried; None for NaN, of one that diverged."""
    return None if np.isnan(value) else float(value)
