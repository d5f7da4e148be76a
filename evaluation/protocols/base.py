"""The contract of protocols, and their subject: one model on one data set, features extracted on first use."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from evaluation import datasets
from evaluation.datasets import Reading
from evaluation.datasets._labels import NoLabels, check_classes, check_labels, occurring_classes
from evaluation.datasets.base import Split
from evaluation.features.extraction import features_of
from evaluation.features.table import Features, join_splits
from evaluation.results.measures import chance
from evaluation.results.result import Result
from evaluation.tuning.task import open_splits
from sslkit.data.published.base import Entry
from sslkit.data.sources.class_names import refuse_classes
from sslkit.errors import UserError
from sslkit.models.loading import Loading
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime

TUNED = ("mirror", "out", "device", "save_seconds", "progress")  # shared options of protocols that train a network
NOVEL = ("novel_test", "novel", "all", "test", "train")  # where few-shot looks for classes that were not trained on
ANY = "labelled or not"  # images, in a key of what is shared
ALL = "no image has a label: all are measured"  # in the place of a note on held-out images
T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """A protocol to run. source: of the data, None where the protocol finds its own. options: its `Options`."""

    name: str
    source: Any
    options: Any


@dataclass(frozen=True)
class Judged:
    """A model and its results of one protocol.

    asked: a zoo entry, or the word of a command line. folder: of its results.jsonl.
    """

    asked: Any
    model: Model
    folder: Path
    results: list[Result]


@dataclass(frozen=True)
class Terminal:
    """Steps of the judge that a protocol may replace; `Terminal()` has the usual ones.

    usual: the source where none is named; None: `open` finds the data.
    classifies: whether a map and the confusions are drawn of its data.
    fits(model, options): raises UserError for a network that it cannot judge. Of several models each is checked before
        the data are opened.
    agreed(models, task): the task, completed by what the models that are judged together agree on.
    plan(opened, task, runtime): lines said before it is run, each a label and a text.
    remarks(judged): lines said below the table.
    following(judged, task, place): the next command; None: that of evaluate.py, "": none. place: the judge's arguments.
    """

    usual: str | None = "fashion_mnist"
    classifies: bool = False
    fits: Callable[[Model, Any], None] = lambda model, options: None
    agreed: Callable[[Sequence[Model], Task], Task] = lambda models, task: task
    plan: Callable[[Any, Task, Runtime], list[tuple[str, str]]] = lambda opened, task, runtime: [
        ("", f"{task.name} on {task.source}")
    ]
    remarks: Callable[[Sequence[Judged]], list[str]] = lambda judged: []
    following: Callable[[Sequence[Judged], Task, Mapping[str, Any]], str | None] = lambda judged, task, place: None


@dataclass(frozen=True)
class Protocol:
    """The four names that every protocol defines, and `terminal`, which most do not.

    Options: a frozen dataclass of keywords, each a `sslkit.options.settings.setting` with default, range and text.
    open(subject, options): opens data and model and checks everything before anything is computed. Returns what `run`
        takes: the subject itself for labelled images, else the protocol's own object. Raises UserError.
    run(opened, options, runtime): the results, made by `Result.from_estimate` with the digests of the features that
        they depend on. Under torchrun all ranks run it. runtime.out: folder of what it keeps beside its result, such as
        a grid's finished runs.
    beside(result): names in `result.others` that are further rows of the table and of the page.
    terminal: what the judge checks and says in another way than usual.
    """

    Options: type
    open: Callable[["Subject", Any], Any]
    run: Callable[[Any, Any, Runtime], list[Result]]
    beside: Callable[[Result], tuple[str, ...]]
    terminal: Terminal


def among(result: Result, *names: str) -> tuple[str, ...]:
    """Return the names that `result.others` has."""
    return tuple(name for name in names if name in result.others)


def defaults_of_all() -> dict[str, Any]:
    """Return the options of every protocol by name, with their defaults."""
    return {**vars(Loading()), **vars(Reading()), **vars(Runtime())}


@dataclass
class Subject:
    """The input of a protocol's `open(subject, options)`.

    model: loaded. data: as `evaluation.datasets.open_split` takes it. reading: of the data.
    shared: what `once` opened of the data, one mapping for all models that are judged on them.
    dtype: of the features; of other than float32, train and val are not joined in memory.
    """

    model: Model
    data: Any
    reading: Reading = Reading()
    shared: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    dtype: Any = np.float32
    _features: dict[Hashable, Features] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.model is not None:  # None where only the data are asked about
            self.model = self.model.seeing(self.reading.resize, self.reading.interpolation)

    def with_features(self, model: Model, dtype: Any = np.float32) -> "Subject":
        """Return the same subject with other features of its network; `with_notes` of both knows them."""
        return replace(self, model=model, dtype=dtype)

    def once(self, part: Hashable, opening: Callable[[], T]) -> T:
        """Return what `opening` gives of a part of the data, opened once for all models."""
        if part not in self.shared:
            self.shared[part] = opening()
        return self.shared[part]

    def open_split(self, split: str) -> Split:
        """Return one split, opened once: its labels are known before anything is extracted."""
        return self.once(("split", split), lambda: self.reading.open(self.data, split))

    def open_unlabelled(self, split: str) -> Split:
        """Return one split for a measure that needs no labels, opened once, with the images that have none.

        Of a source without any label and without images that are set apart it is all of them.
        """

        def read() -> Split:
            try:
                return self.reading.open(self.data, split, needs_labels=False)
            except NoLabels:
                whole = self.reading.open(self.data, "all", needs_labels=False)
                return replace(whole, note=ALL)

        return self.once(("split", f"{split}, {ANY}"), read)

    def features(self, split: str, runtime: Runtime) -> Features:
        """Return the features of a split; they are extracted once for all protocols."""
        key = (self.model.digest, split)
        if key not in self._features:
            opened = self.open_split(split)
            self._features[key] = features_of(self.model, opened, self.reading, runtime, self.dtype)
        return self._features[key]

    def check_train_and_test(self, protocol: str, *, several: bool = False) -> None:
        """Check that a classifier can learn from the training images and be judged by the test images.

        several: the protocol takes several labels an image. Raises UserError for missing labels, fewer than two classes
        to learn, and test classes that are in no training image.
        """
        train, test = [self.open_split(name) for name in self.learns_from], self.open_split(self.test_split)
        for split in (*train, test):
            check_labels(split, protocol, several=several)
        check_classes(train, protocol)
        if test.y.ndim == 1:
            learned = {name for split in train for name in occurring_classes(split)}
            unknown = [name for name in occurring_classes(test) if name not in learned]
            refuse_classes(unknown, f"{test.name} ({test.split})")

    @cached_property
    def entry(self) -> Entry | None:
        """The published set, if it is one."""
        return datasets.find_published(self.data)

    @cached_property
    def splits(self) -> tuple[str, ...]:
        if self.entry:
            return tuple(self.entry.counts)
        return datasets.splits_of(self.data, self.reading.cache, self.reading.columns)

    @property
    def note(self) -> str:
        """Return the note on held-out test images, if the source has no test images of its own."""
        if any(getattr(split, "note", "") == ALL for split in self.shared.values()):
            return ""
        return "" if self.entry else datasets.note_of(self.data, self.reading.cache, self.reading.columns)

    @property
    def learns_from(self) -> tuple[str, ...]:
        """The splits of `train`."""
        if self.entry:
            return (self.entry.train,)
        train = self.require_split("train")
        return (train, "val") if {"val", "test"} <= set(self.splits) else (train,)

    def train(self, runtime: Runtime) -> Features:
        """All that a final classifier may learn from: train and val together, where the set has both."""
        parts = [self.features(name, runtime) for name in self.learns_from]
        return parts[0] if len(parts) == 1 else self._join(*parts)

    def test(self, runtime: Runtime) -> Features:
        return self.features(self.test_split, runtime)

    @property
    def test_split(self) -> str:
        """The name of the split that `test` is. Raises UserError where there is none."""
        return self.require_split("test")

    def novel(self, runtime: Runtime) -> Features:
        """Classes for few-shot episodes: kept back ones, where the set has such."""
        return self.features(self.novel_split, runtime)

    @property
    def novel_split(self) -> str:
        """The name of the split that `novel` is."""
        return next(name for name in NOVEL if name in self.splits)

    def with_notes(self, result: Result) -> Result:
        """The result with what its features have to say: splits, notes, images that could not be read."""
        used = [features for features in self._features.values() if features.digest in result.digests.values()]
        read = used or [
            features for key, features in self.shared.items() if isinstance(key, tuple) and key[0] == "split"
        ]
        lost = sum(len(features.unreadable) for features in used)
        notes = {
            "splits": [features.split for features in used],
            "notes": "; ".join(dict.fromkeys(features.note for features in read if features.note))
            if read
            else self.note,
            "unreadable": lost,
            "largest_class": self._largest_class() if result.metric == "top1" else None,
            "chance": self._chance() if result.metric == "map11" else None,
            "multiply_adds": cost if math.isfinite(cost := self.model.multiply_adds) else None,
            "source": str(self.data) if isinstance(self.data, (str, Path)) else "",  # as named, to name it again
            "columns": self.reading.columns.words,
        }
        return replace(result, details={**{name: value for name, value in notes.items() if value}, **result.details})

    def splits_to_tune(self) -> dict[str, Split]:
        """Return the splits to tune and to test on, without unreadable images, opened once for all models."""
        return self.once("tuned on", lambda: open_splits(self.data, self.reading))

    def _largest_class(self) -> float | None:
        """Return the share of the test images in their largest class: the accuracy of always answering it."""
        test = self.shared.get(("split", "test"))
        return None if test is None or test.y.ndim != 1 else float(np.bincount(test.y[test.y >= 0]).max() / len(test))

    def _chance(self) -> dict[str, float] | None:
        """Return what random scores have on the test images, by the metrics for several labels."""
        test = self.shared.get(("split", "test"))
        return None if test is None else self.once("chance", lambda: chance(test.y))

    def open_labelled(self) -> list[Split]:
        """Return the splits that there are of train, val and test, opened, for protocols that tune on images."""
        names = (*self.learns_from, "val", "test")
        return [self.open_split(name) for name in dict.fromkeys(names) if name in self.splits]

    def _join(self, first: Features, second: Features) -> Features:
        key = (self.model.digest, f"{first.split}+{second.split}")
        if key not in self._features:
            self._features[key] = join_splits(first, second, in_memory=self.dtype is np.float32)
        return self._features[key]

    def require_split(self, name: str) -> str:
        """Return the name. Raises UserError for data without such a split."""
        if name not in self.splits:
            splits = ", ".join(self.splits)
            raise UserError(f"{self.data} has no split {name!r} (it has: {splits}), which this protocol needs")
        return name
