"""Numbers whose test images were trained on: they say so beside the value, and stand again without these images."""

from collections.abc import Callable
from typing import Any

import numpy as np

from evaluation.results.result import Result
from evaluation.results.statistics import Estimate
from sslkit.data.copies import line_of_near, line_within
from sslkit.errors import UserError
from sslkit.terminal.say import counted

UNSEEN = "without images of train"  # a name in `Result.others`
IN_TRAIN, TESTED, NEAR = "in_train", "tested", "near_copies"  # in `Result.details`
FEW = 0.01  # a smaller share of the test images moves an accuracy by less than its interval: counted, not leaky


def beside(in_train: np.ndarray, measure: Callable[[np.ndarray], Estimate]) -> dict[str, Estimate]:
    """Return {UNSEEN: the estimate of the test images that are not in train}; {} where all or none are.

    in_train: (M,) bool. measure: of chosen rows (m,) int64; where they have no such number, it raises UserError.
    """
    if not in_train.any() or in_train.all():
        return {}
    try:
        return {UNSEEN: measure(np.flatnonzero(~in_train))}
    except UserError:  # as a mean over classes of which the rest has none
        return {}


def take(groups: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    """Return the groups (N,) of these rows (m,); None where there are none."""
    return None if groups is None else groups[rows]


def details(in_train: np.ndarray, near: np.ndarray | None = None) -> dict[str, Any]:
    """Return the entries of `Result.details` on test images that are also training images, or near-copies of some.

    in_train: (M,) bool. near: (M,) bool; None where it is not known.
    """
    near_count = {} if near is None else {NEAR: int((near | in_train).sum())}
    return {IN_TRAIN: int(in_train.sum()), TESTED: len(in_train), **near_count}


def within(near: np.ndarray | None) -> dict[str, Any]:
    """Return the entry of `Result.details` on images (N,) bool that are near-copies of others; {} where not known."""
    return {} if near is None else {NEAR: int(near.sum())}


def is_leaky(in_train: np.ndarray) -> bool:
    return bool(in_train.sum() > FEW * len(in_train))


def describe(result: Result, written: Callable[[Estimate], str]) -> str:
    """Return "; without 40 images of train: 71.0 % ± 4.1" to stand behind a value, "" where none was trained on."""
    count, tested = result.details.get(IN_TRAIN), result.details.get(TESTED)
    if not count or result.metric == UNSEEN:
        return ""
    if UNSEEN in result.others:
        return f"; without {counted(count, 'image')} of train: {written(result.others[UNSEEN])}"
    images = counted(count, "image")
    return f"; all {images} are of train" if count == tested else f"; with {images} of train"


def note_of(result: Result) -> str:
    """Return a line on test images that are also training images, or near-copies of some; "" without any."""
    count, tested = result.details.get(IN_TRAIN, 0), result.details.get(TESTED, 0)
    if has_near(result) and not tested:
        return line_within(result.details[NEAR], result.details["images"], f"images of {result.data}")
    if has_near(result):
        return line_of_near(result.details[NEAR], count, tested, f"test images of {result.data}")
    return f"{count:,} of {tested:,} test images of {result.data} are also training images" if count else ""


def has_near(result: Result) -> bool:
    """Return whether test images are near-copies of training images, beside those that are the same."""
    return result.details.get(NEAR, 0) > result.details.get(IN_TRAIN, 0)
