"""Do the most similar training images have the class? Exact, cosine, votes by exp(s / T), nothing is trained.

See `sslkit.numerics.neighbours`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evaluation.features.table import Features, match_labels, one_label
from evaluation.protocols.base import Subject, Terminal
from evaluation.results import unseen
from evaluation.results.class_means import mean_per_class
from evaluation.results.measures import right_by_largest
from evaluation.results.result import Result, rows_digest
from evaluation.results.statistics import Estimate, share
from sslkit.data.copies import near_in_train
from sslkit.errors import UserError
from sslkit.numerics import accuracy
from sslkit.numerics.neighbours import TEMPERATURE, K, Own
from sslkit.options.settings import setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime


@dataclass(frozen=True, kw_only=True)
class Options:
    k: int = setting(K, "nearest training images that vote", least=1, most=10_000)
    temperature: float = setting(TEMPERATURE, "T of the votes; smaller values weight the nearest more", above=0)
    ks: Sequence[int] = setting(
        (1, 10, 20, 100, 200),
        'further numbers of neighbours, those up to the number of training images; in `others`, as "k=10"',
        least=1,
        most=10_000,
    )


@public()
def knn(train: Any, test: Any, options: Options) -> Result:
    """Accuracy of weighted votes of the k nearest training images.

        train, test = (evaluation.extract("runs/zoo/NAME", "digits", split) for split in ("train", "test"))
        evaluation.knn(train, test, k=20).value  # a fraction

    train, test: Features or pairs (x: (N, D), y: (N,)). A test image that is also in train, under whatever name (see
    `sslkit.data.pixel_digest`), is excluded from its own neighbours, with the images of its groups if train has some;
    details["in_train"] is their number, and without them the accuracy stands in `others`.
    The metric is that of test, top1 or mean_per_class. Equal votes, and equally similar images at the k-th place, go
    to the smaller class number, then to the smaller id (`predict`, `sslkit/numerics/neighbours.py`,
    `sslkit/numerics/ties.py`). Memory beside the features: some 0.2 GB, independent of their number.
    Raises UserError for invalid features, rows of zeros, several labels per image, test classes that train lacks, and
    k above the number of training images.
    """
    return classify(train, test, options)


def classify(train: Any, test: Any, options: Options) -> Result:
    """The result of `knn`."""
    start = time.perf_counter()
    train, test = (one_label(features, "knn") for features in match_labels(train, test))
    excluded, most = left_out(train, test)
    k, temperature = options.k, options.temperature
    if k > most:
        why = "" if excluded is None else " (itself, or its group, is left out)"
        raise UserError(f"k must be at most {most}, the number of training images{why}, got {k}")
    ks = sorted({k, *(count for count in options.ks if count <= most)})
    labels = predict(train, test, ks, temperature, excluded)
    right = {count: labels[count] == test.y for count in ks}
    in_train = np.zeros(len(test), bool) if excluded is None else excluded.in_train

    def estimate(count: int, rows: Any = slice(None)) -> Estimate:
        return _judge(right[count][rows], test.y[rows], test.metric, unseen.take(test.groups, rows))

    apart = unseen.beside(in_train, lambda rows: estimate(k, rows))
    return Result.from_estimate(
        estimate(k),
        protocol="knn",
        recipe=f"cosine, k={k}, T={temperature:g}" + (", leave one out" if excluded is not None else ""),
        metric=test.metric,
        model=test.model,
        data=test.data,
        others={f"k={count}": estimate(count) for count in ks if count != k} | apart,
        digests={"train": train.digest, "test": test.digest},
        seconds=time.perf_counter() - start,
        details={
            "k": int(k),
            "temperature": float(temperature),
            "bank": len(train),
            "leave_one_out": excluded is not None,
            **unseen.details(in_train, near_in_train([train.likeness], test.likeness)),
        },
        outcomes=right[k],
        groups=test.groups,
        largest=right_by_largest(test.y),
        paired_on=rows_digest(test.ids, test.y),
    )


def predict(
    train: Features,
    test: Features,
    ks: Sequence[int],
    temperature: float = TEMPERATURE,
    own: Own | None = None,
) -> dict[int, np.ndarray]:
    """{k: (M,) int64 predicted label of each test image}, for each of `ks`.

    own: a test image is not compared with the training images that belong to it.
    """
    order = np.lexsort((train.ids, train.y))  # makes labels independent of the order of the rows and of the blocks
    by_id = np.argsort(test.ids, kind="stable")
    voted = accuracy.predict(train.x, train.y, order, test.x, by_id, ks, temperature, own)
    labels = {k: np.empty(len(test), np.int64) for k in ks}
    for k in ks:
        labels[k][by_id] = voted[k]
    return labels


def _judge(right: np.ndarray, y: np.ndarray, metric: str, groups: np.ndarray | None) -> Estimate:
    return mean_per_class(right, y, groups) if metric == "mean_per_class" else share(right, groups)


def left_out(train: Features, test: Features) -> tuple[Own | None, int]:
    """Return what is not compared with a test image: the same image and its groups in train; and the neighbours left.

    None if no test image is in train.
    """
    excluded = Own.from_rows(train.images, test.images, train.groups)
    return (excluded if excluded.in_train.any() else None), len(train) - excluded.most


def open(subject: Subject, options: Options) -> Subject:
    """Check the labels, and a given number of neighbours, before feature extraction. Raises UserError."""
    subject.check_train_and_test("knn")
    most = sum(len(subject.open_split(name)) for name in subject.learns_from)
    if options.k > most and options.k != Options.k:
        raise UserError(f"knn.k={options.k} neighbours, but only {most} training images of {subject.data}: lower knn.k")
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """Classify every test image by its neighbours among all training images; see `knn`.

    The usual number of neighbours is lowered to what few images have, and the recipe says to how many.
    """
    train, test = match_labels(opened.train(runtime), opened.test(runtime))
    k = max(min(options.k, left_out(train, test)[1]), 1)
    return [classify(train, test, replace(options, k=k))]


def beside(result: Result) -> tuple[str, ...]:
    return ()


terminal = Terminal(classifies=True)
