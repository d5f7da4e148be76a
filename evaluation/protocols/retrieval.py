"""Does an image find those of its instance, or class, before all others? mAP, recall at k, mAP at R.

Of data that are published as revisited Oxford and Paris (Radenovic et al. 2018, arXiv 1803.11285) their own queries are
looked for by their rules; see `evaluation.datasets.revisited`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from evaluation.datasets import LABELLED, MEASURED, Reading
from evaluation.datasets._labels import check_labels
from evaluation.datasets.base import Split
from evaluation.datasets.revisited import COUNTED, Revisited, find_lists, open_revisited
from evaluation.features.extraction import CROPPED, LOADED, features_of
from evaluation.features.table import Features, as_features
from evaluation.learners.rankings import (
    average_precision,
    precision_at_k,
    precision_at_r,
    rank_gallery,
    recall_scores,
    trapezoid,
)
from evaluation.protocols._answers_sheet import DRAWN, FIRST, WORST, Part, draw_chosen
from evaluation.protocols.base import Subject, among
from evaluation.results.result import Result, rows_digest
from evaluation.results.statistics import LEAST, bootstrap_mean, over_groups, over_pseudo_values, pseudo_values, share
from sslkit.errors import UserError, nearest
from sslkit.models.loading import Loading
from sslkit.options.settings import setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.terminal import say
from sslkit.terminal.say import counted

ALL = "all"
MEANS = ("map", "map_at_r")
BESIDE = (*MEANS[1:], "recall_at_1", "map_easy", "map_hard")


@dataclass(frozen=True, kw_only=True)
class Options:
    ks: Sequence[int] = setting(
        (1, 5, 10), "k of recall, those up to the number of images that are searched", least=1, most=10_000
    )
    split: str = setting(MEASURED, "split whose images are the queries, and are searched")
    draw: Sequence[str] = setting(
        (), f"names of queries whose first {FIRST} answers are drawn; [{WORST}]: the {DRAWN} with the lowest; []: none"
    )


@dataclass(frozen=True)
class Opened:
    """A model and the split whose images are queries; of published queries these, and no split."""

    subject: Subject
    published: Revisited | None


@public(*LOADED, *LABELLED, *CROPPED, "on_error", "precision", "batch_size", "device", "workers", "progress", "out")
def retrieval(
    model: Any, data: Any, *, options: Options, loading: Loading, reading: Reading, runtime: Runtime
) -> Result:
    """Return the mean average precision of each image as a query among all others of its split.

        evaluation.retrieval("runs/zoo/NAME", "path/to/images", columns={"instance": "object"}).others["recall_at_1"]

    An answer is an image of the same instance (columns.instance=, or the label). The query itself, copies of it and
    images of its group (columns.group=) do not count. A query without an answer is searched, but is no query.
    Of equally similar images the wrong ones come first. Others: mAP at R, recall at each k.
    The interval is the jackknife over images, each a query and an answer of others; over instances of 30 or more;
    over groups, if there are some. Memory beside the features: 0.2 GB.
    A folder with gnd_NAME.pkl has its own queries, boxes of images, and junk: the value is mAP of the protocol medium,
    with trapezoids below the curve; others: easy, hard, precision at k. The interval is over queries.
    Raises UserError for images without labels, and where no query has an answer.
    """
    subject = Subject(loading.load(model), data, reading)
    return run(open(subject, options), options, runtime)[0]


def open(subject: Subject, options: Options) -> Opened:
    """Check that there are queries with answers before feature extraction. Raises UserError."""
    if file := find_lists(subject.data):
        reading = replace(subject.reading, on_error="raise")
        published = subject.once(("revisited", str(file)), lambda: open_revisited(file, reading))
        _check_drawn(published.queries, options)
        return Opened(replace(subject, reading=reading), published)
    subject.require_split(options.split)
    subject = replace(subject, reading=replace(subject.reading, columns=subject.reading.columns.by_instance))
    split = subject.open_split(options.split)
    check_labels(split, "retrieval")
    alone = _without_answer(split.y, split.groups)
    where = f"{split.name} ({split.split})"
    if alone.all():
        raise UserError(
            f"{where}: no image has another one of its instance"
            f"{' outside its group' if split.groups is not None else ''} to be found by retrieval"
            f"{'; retrieval.split=all takes all images' if ALL in subject.splits and options.split != ALL else ''}"
        )
    if alone.any():
        say.warn(f"{where}: {alone.sum():,} of {len(alone):,} images have no answer, and are no queries", stacklevel=2)
    _check_drawn(split, options)
    return Opened(subject, None)


def run(opened: Opened, options: Options, runtime: Runtime) -> list[Result]:
    """Rank all other images for each one; see `retrieval`."""
    if opened.published is not None:
        return [_find_published(opened.subject, opened.published, options, runtime)]
    features = opened.subject.features(options.split, runtime)
    result, score, instances = _find_each_other(features, options)
    images = Part(features, opened.subject.open_split(options.split))
    draw_chosen(options.draw, images, images, score, instances.answers, runtime)
    return [result]


def beside(result: Result) -> tuple[str, ...]:
    """MAP at R and recall at 1, or mAP of the protocols easy and hard."""
    return among(result, *BESIDE)


@dataclass(frozen=True)
class Instances:
    """Which images are answers of each other. y: (N,) their instances. itself: (N,) equal for one image."""

    y: np.ndarray
    itself: np.ndarray

    @classmethod
    def of(cls, features: Features) -> "Instances":
        together = features.together
        return cls(features.y, np.arange(len(features)) if together is None else together)

    def answers(self, query: int) -> tuple[np.ndarray, np.ndarray]:
        left_out = np.flatnonzero(self.itself == self.itself[query])
        return np.setdiff1d(np.flatnonzero(self.y == self.y[query]), left_out), left_out


def measure(features: Any, options: Options) -> Result:
    """The result of `Features`, or of a pair (x: (N, D), y: (N,)); see `retrieval`."""
    return _find_each_other(as_features(features), options)[0]


def _find_each_other(features: Features, options: Options) -> tuple[Result, np.ndarray, Instances]:
    start = time.perf_counter()
    ks = tuple(k for k in options.ks if k < len(features))
    scores = dict(zip(MEANS, (average_precision, precision_at_r), strict=True)) | recall_scores(ks)
    instances = Instances.of(features)
    ranked = rank_gallery(features.x, features.x, instances.answers, scores, MEANS)
    has_answer = ~np.isnan(ranked.values["map"])
    if not has_answer.any():
        raise UserError(f"{features.data}: no image has an answer that is not a copy of itself, or of its group")
    units, over = _units(features.y, features.groups)
    pseudo = {name: pseudo_values(float(np.nanmean(ranked.values[name])), ranked.without[name]) for name in MEANS}
    estimates = {
        name: replace(over_pseudo_values(each, over, units), n=int(has_answer.sum())) for name, each in pseudo.items()
    }
    drawn = (ranked.pairs if units is None else units)[has_answer]
    kind = {"kind": "wilson over images, two that find each other as one"} if units is None else {}
    recalls = {name: share(ranked.values[name][has_answer] > 0, drawn) for name in scores if name not in MEANS}
    estimates |= {name: replace(estimate, **kind) for name, estimate in recalls.items()}
    result = Result.from_estimate(
        estimates.pop("map"),
        protocol="retrieval",
        recipe=f"cosine, each of {counted(len(features), 'image')} among the others",
        metric="map",
        model=features.model,
        data=features.data,
        others=estimates,
        digests={"features": features.digest},
        seconds=time.perf_counter() - start,
        details={
            "instances": len(np.unique(features.y)),
            "without_an_answer": int((~has_answer).sum()),
            "chance": {"map": _chance(instances, np.flatnonzero(has_answer))},
        },
        outcomes=pseudo["map"],
        groups=units,
        paired_on=rows_digest(features.ids, features.y),
    )
    return result, ranked.values["map"], instances


def _units(y: np.ndarray, groups: np.ndarray | None) -> tuple[np.ndarray | None, str]:
    """Return what is drawn together (N,), None for each image alone, and its name in the kind of an interval."""
    if over := over_groups(groups):
        return groups, over
    count = len(np.unique(y))
    return (y, f"{count:,} instances") if LEAST <= count < len(y) else (None, "images")


def _without_answer(y: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    """Return (N,) bool: images whose instance has no other image, or none of another group."""
    pairs = np.stack([y, np.arange(len(y)) if groups is None else np.unique(groups, return_inverse=True)[1]], 1)
    distinct = np.unique(pairs, axis=0)
    return np.bincount(distinct[:, 0], minlength=int(y.max()) + 1)[y] < 2


def _chance(instances: Instances, queries: np.ndarray) -> float:
    """Return the mean average precision of a random order.

    Of R answers among n images it is H / n + (R - 1) / (n - 1) (1 - H / n), H the sum of 1 / 1 to 1 / n.
    """
    pairs = (instances.answers(query) for query in queries)
    count, n = np.array([(len(right), len(instances.y) - len(left_out)) for right, left_out in pairs]).T
    harmonic = np.cumsum(1 / np.arange(1, len(instances.y) + 1))[n - 1] / n
    return float(np.mean(harmonic + (count - 1) / np.maximum(n - 1, 1) * (1 - harmonic)))


def _find_published(subject: Subject, published: Revisited, options: Options, runtime: Runtime) -> Result:
    start = time.perf_counter()
    queries, images = (
        features_of(subject.model, split, subject.reading, runtime) for split in (published.queries, published.images)
    )
    ks = {f"precision_at_{k}": partial(precision_at_k, k) for k in options.ks if k <= len(images)}
    ranked = {
        protocol: rank_gallery(
            queries.x, images.x, partial(published.answers, protocol), {"map": trapezoid, **ks}
        ).values
        for protocol in COUNTED
    }
    score = ranked["medium"]["map"]
    has_answer = ~np.isnan(score)
    if has_answer.sum() < 2:
        raise UserError(f"{images.data}: {has_answer.sum()} of {len(score)} queries has an answer, easy or hard")
    others = {f"map_{protocol}": ranked[protocol]["map"] for protocol in ("easy", "hard")}
    others |= {name: ranked["medium"][name] for name in ks}
    parts = Part(queries, published.queries), Part(images, published.images)
    draw_chosen(options.draw, *parts, score, partial(published.answers, "medium"), runtime)
    kind = {"kind": "bootstrap over queries"}
    return Result.from_estimate(
        bootstrap_mean(score[has_answer], **kind),
        protocol="retrieval",
        recipe=f"cosine, protocol medium of revisited Oxford and Paris, {len(score)} queries",
        metric="map",
        model=subject.model.name,
        data=images.data,
        others={
            name: bootstrap_mean(each[~np.isnan(each)], **kind)
            for name, each in others.items()
            if (~np.isnan(each)).sum() > 1
        },
        digests={"queries": queries.digest, "features": images.digest},
        seconds=time.perf_counter() - start,
        details={"images": len(images), "without_an_answer": int((~has_answer).sum())},
        outcomes=score[has_answer],
        paired_on=rows_digest(queries.ids[has_answer], np.flatnonzero(has_answer)),
    )


def _check_drawn(split: Split, options: Options) -> None:
    """Raises UserError for the name of no query."""
    names = set(map(str, split.ids))
    for name in options.draw:
        if name not in names and name != WORST:
            raise UserError(f"retrieval.draw: there is no image {name!r}: {nearest(name, sorted(names))}")
