"""The linear head of numbers: ridge regression of the features as they are, and its result on the test images."""

import time
from typing import Any

import numpy as np

from evaluation.features.table import Features, join_splits
from evaluation.learners.cross_fit import FOLDS, folds_of
from evaluation.learners.ridge import fit_ridge
from evaluation.protocols.linear import Fitted
from evaluation.results import unseen
from evaluation.results.measures import right_by_constant
from evaluation.results.numbers import measure_numbers
from evaluation.results.result import Result, rows_digest
from sslkit.data.copies import near_in_train
from sslkit.runtime.context import Runtime

RECIPE = f"ridge on frozen features, standardized, its strength by {FOLDS} folds of train"


def fit_numbers(
    train: Features, test: Features, runtime: Runtime, val: Features | None = None
) -> tuple[Result, Fitted]:
    """Fit a ridge to train and val together, groups and copies in one fold; return its result on test, and its layers.

    y of both: (N,) float64. The seed is of the folds.
    """
    start = time.perf_counter()
    learned = train if val is None else join_splits(train, val)
    folds = folds_of(learned.y, learned.ids, learned.together, runtime.seed)
    ridge = fit_ridge(learned.x, learned.y, folds)
    predicted = ridge.predict(test.x)
    in_train = np.isin(test.images, learned.images)
    details: dict[str, Any] = {
        "strength": ridge.strength,
        "tried": [{"strength": strength, "mean_square": error} for strength, error in ridge.tried.items()],
        "chosen_by": f"{FOLDS} folds of train",
        **unseen.details(in_train, near_in_train([learned.likeness], test.likeness)),
    }
    result = result_of_numbers(
        predicted,
        test,
        learned.y,
        protocol="linear",
        recipe=RECIPE,
        seeds=[runtime.seed],
        digests={"train": learned.digest, "test": test.digest},
        leaky=unseen.is_leaky(in_train),
        seconds=time.perf_counter() - start,
        details=details,
    )
    return result, Fitted(ridge.layers, tuple(train.classes), predicted[:, None], test.y, None, None, details)


def result_of_numbers(predicted: np.ndarray, test: Features, learned: np.ndarray, **fields: Any) -> Result:
    """Return the result of predicted numbers (N,). learned: labels of train, whose mean is the null."""
    estimate, others, shares = measure_numbers(predicted, test.y, test.groups, test.classes[0])
    return Result.from_estimate(
        estimate,
        **{"metric": test.metric, "model": test.model, "data": test.data, **fields},
        others=others,
        outcomes=shares,
        groups=test.groups,
        largest=right_by_constant(test.y, learned),
        paired_on=rows_digest(test.ids, test.y),
    )
