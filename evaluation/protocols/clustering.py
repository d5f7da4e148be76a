"""Are the classes there without any label? k-means of the features: NMI, ARI, accuracy of the best matching."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evaluation.datasets._labels import check_classes, check_labels
from evaluation.features.table import Features, as_features, one_label
from evaluation.learners.partitions import MEASURES, Contingency, k_means
from evaluation.protocols.base import Subject, among
from evaluation.results.result import Result, rows_digest
from evaluation.results.statistics import Estimate, generator, over_groups, over_pseudo_values, over_seeds
from sslkit.errors import UserError
from sslkit.numerics.neighbours import unit_rows
from sslkit.options.settings import MOST, setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.terminal.say import counted

SHUFFLED = 20  # random orders of the clusters, whose mean stands for random labels: a round number
RESTARTED = " over restarts"  # ends the name of a measure whose interval is over restarts


@dataclass(frozen=True, kw_only=True)
class Options:
    k: int | Sequence[int] = setting(
        (), "clusters, a result for each value; []: as many as classes", least=2, most=MOST
    )
    restarts: int = setting(10, "starts of k-means, which are averaged", least=2, most=1000)
    iterations: int = setting(50, "rounds of each start", least=1, most=MOST)

    def counts(self, classes: int) -> list[int]:
        """Return the numbers of clusters, for so many classes."""
        return ([self.k] if isinstance(self.k, int) else list(self.k)) or [classes]


@public("seed")
def clustering(features: Any, *, options: Options, runtime: Runtime) -> list[Result]:
    """Return the normalised mutual information of k-means clusters and classes, a result for each k.

        [result] = evaluation.clustering(evaluation.extract("runs/zoo/NAME", "digits", "test"))
        result.others["cluster_accuracy"], result.details["chance"]

    features: Features or a pair (x: (N, D), y: (N,)), l2-normalised here. Others: the adjusted Rand index, and the
    accuracy of the one-to-one matching of clusters and classes with the most right. What random clusters of these sizes
    have stands in details["chance"]: not 0 for NMI and accuracy.
    All are means over the restarts. The intervals are over images, or their groups, by the jackknife to first order,
    and over restarts on halves of them (see `with_restarts`); `others` has each measure with that over restarts alone,
    as "nmi over restarts".
    Raises UserError for invalid features, several labels per image, and k of as many as the images, or more.
    """
    features = one_label(as_features(features), "clustering")
    counts = options.counts(len(np.unique(features.y)))
    _check_counts(counts, len(features), features.data)
    return [measure(features, k, options, runtime.seed) for k in counts]


def measure(features: Features, k: int, options: Options, seed: int) -> Result:
    """The result of one number of clusters; see `clustering`."""
    start = time.perf_counter()
    x = unit_rows(features.x, "features")
    seeds = generator(seed, "k-means").integers(2**31 - 1, size=options.restarts).tolist()
    tables = [Contingency.count(features.y, k_means(x, k, options.iterations, start_seed)) for start_seed in seeds]
    drawing, half = generator(seed, f"halves of {features.digest}"), max(len(x) // 2, k)
    halves = [
        Contingency.count(features.y, k_means(x, k, options.iterations, start_seed, drawing.permutation(len(x))[:half]))
        for start_seed in seeds
    ]
    over = over_groups(features.groups)
    others: dict[str, Estimate] = {}
    by_image = {}
    for name, agree in MEASURES.items():
        values, images = zip(*map(agree, tables), strict=True)
        rng = generator(seed, f"restarts of {features.digest}")
        spread = np.array([agree(table)[0] for table in halves])
        by_image[name] = with_restarts(np.mean(images, 0), spread, rng)
        kind = f"{over or 'images'} and restarts"
        others[name] = over_pseudo_values(by_image[name], kind, features.groups if over else None)
        others[name + RESTARTED] = replace(over_seeds(values), kind=f"t over {options.restarts} restarts")
    main = next(iter(MEASURES))
    return Result.from_estimate(
        others.pop(main),
        protocol="clustering",
        recipe=f"k-means on l2-normalised features, k={k}, mean of {options.restarts} restarts",
        metric=main,
        model=features.model,
        data=features.data,
        others=others,
        seeds=[seed],
        digests={"features": features.digest},
        seconds=time.perf_counter() - start,
        details={
            "k": k,
            "classes": len(np.unique(features.y)),
            "restarts": options.restarts,
            "iterations": options.iterations,
            "chance": chance(tables[0], seed),
        },
        outcomes=by_image[main],
        groups=features.groups if over else None,
        paired_on=rows_digest(features.ids, features.y),
    )


def with_restarts(by_image: np.ndarray, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return (N,) values of images whose mean varies with the clusters, too, as it does for other images.

    by_image: (N,) to first order, the clusters given. values: (R,) of restarts that each learn from half of the images:
    k-means of other images ends in other clusters, which their spread stands for. Each image carries the deviation of
    one of them, at random, times the root of N. With given clusters alone intervals of 100 to 400 images held 60 to
    80 %.
    """
    n = len(by_image)
    apart = (values - values.mean())[rng.permutation(n) % len(values)]
    return by_image + (apart - apart.mean()) * n**0.5


def chance(table: Contingency, seed: int) -> dict[str, float]:
    """Return what clusters of these sizes have by each measure that are random."""
    rng = generator(seed, "random clusters")
    shuffled = [Contingency.count(table.y, rng.permutation(table.cluster)) for _ in range(SHUFFLED)]
    return {name: float(np.mean([agree(table)[0] for table in shuffled])) for name, agree in MEASURES.items()}


def open(subject: Subject, options: Options) -> Subject:
    """Check labels and numbers of clusters before feature extraction. Raises UserError."""
    test = subject.open_split(subject.test_split)
    check_labels(test, "clustering")
    check_classes([test], "clustering")
    _check_counts(options.counts(len(np.unique(test.y))), len(test), f"{test.name} ({test.split})")
    return subject


def _check_counts(counts: Sequence[int], images: int, where: str) -> None:
    if max(counts) >= images:
        raise UserError(
            f"clustering: {max(counts)} clusters of {counted(images, 'image')} of {where or 'these features'}: give "
            "clustering.k= below the number of images, or data with several images a class"
        )


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """Cluster the features of the test images; see `clustering`."""
    features = opened.test(runtime)
    return [measure(features, k, options, runtime.seed) for k in options.counts(len(np.unique(features.y)))]


def beside(result: Result) -> tuple[str, ...]:
    """The adjusted Rand index and the accuracy of the best matching."""
    return among(result, *MEASURES)
