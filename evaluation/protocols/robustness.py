"""Does a probe hold on other sets of the same classes, and are its probabilities right? Accuracy and drop by set.

The linear probe of the training images is applied to the test images and to those of every further set, by the names of
their classes. Beside each accuracy stand its drop, the probabilities' likelihood, Brier's score and calibration error.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evaluation.datasets import LABELLED, Reading
from evaluation.datasets._labels import check_labels, occurring_classes
from evaluation.datasets.base import Split
from evaluation.features.extraction import CROPPED, LOADED
from evaluation.features.table import Features, match_labels
from evaluation.learners.calibration import BINS, measure_probabilities, softmax
from evaluation.protocols import linear
from evaluation.protocols._by_class import Sorted, draw_worst, write_classes
from evaluation.protocols.base import Judged, Subject, Task, Terminal, among
from evaluation.results import unseen
from evaluation.results.class_means import mean_per_class
from evaluation.results.measures import right_by_largest
from evaluation.results.result import Result, rows_digest
from evaluation.results.statistics import Estimate, difference_of_shares, share
from evaluation.results.tables import with_interval
from sslkit.data.copies import near_in_train
from sslkit.data.sources.class_names import known, list_names
from sslkit.errors import UserError
from sslkit.files.writing import name_of
from sslkit.models.loading import Loading
from sslkit.numerics.ties import top_class
from sslkit.options.settings import setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.runtime.distributed import rank
from sslkit.terminal.say import counted
from sslkit.terminal.tables import align

ALL = "all"  # the split of a set without test images: none of them was learned from
SCALED = "_scaled"  # behind the name of a number: after the temperature
PROBABILITIES = ("nll", "brier", "ece")
BLOCK = 4096  # rows of features that are scored at once


@dataclass(frozen=True, kw_only=True)
class Options:
    sets: Sequence[str] = setting((), "further data sets with classes of the data, matched by name; []: none")
    worst: int = setting(
        8, "classes of lowest accuracy of each set that are drawn with their images; 0: none", least=0, most=50
    )


@dataclass(frozen=True)
class Opened:
    """home: the data. others: each further set, with its split. learned: the classes of the training images."""

    home: Subject
    others: tuple[tuple[Subject, str], ...]
    learned: tuple[str, ...]


@public(*LOADED, *LABELLED, *CROPPED, "on_error", "precision", "batch_size", "device", "workers", "progress", "out")
def robustness(
    model: Any, data: Any, *, options: Options, loading: Loading, reading: Reading, runtime: Runtime
) -> list[Result]:
    """Return the accuracy of the linear probe on the test images of the data, then on those of each further set.

        home, sketches = evaluation.robustness("runs/zoo/NAME", "photos", sets=["sketches"])
        sketches.value, sketches.others["drop"].interval, home.others["ece"].value

    sets: of their test images, or all of a set that tells none apart. Accuracy, drop and the rest are over the classes
    that a set shares with the training images: scores of others do not count, also not for the accuracy at home that
    the drop is from. The drop's interval is Newcombe's.
    others: drop; mean_per_class; nll, brier and ece, and the same after one temperature, fitted on held-out training
    images, as nll_scaled and so on: see `evaluation.learners.calibration.measure_probabilities`.
    In `out` stand robustness-DATA.csv, the accuracy of each class, and the worst classes of each set with images.
    Raises UserError for data without test images, a set with fewer than two of the classes, or several labels an image.
    """
    subject = Subject(loading.load(model), data, reading)
    return run(open(subject, options), options, runtime)


def open(subject: Subject, options: Options) -> Opened:
    """Check labels and classes of all sets before feature extraction. Raises UserError."""
    subject.check_train_and_test("robustness")
    learned = tuple(dict.fromkeys(name for split in subject.learns_from for name in _classes(subject, split)))
    sources = [str(subject.data), *options.sets]
    if twice := next((source for source in sources if sources.count(source) > 1), None):
        raise UserError(f"robustness.sets: {twice} is given twice, or is the data itself")
    others = []
    for source in options.sets:
        shared = subject.once(("robustness", source), dict)
        other = Subject(subject.model, source, subject.reading, shared)
        split = ALL if other.note else other.test_split
        check_labels(other.open_split(split), "robustness")
        common, _, _ = match(_classes(other, split), learned, source)
        if len(common) < 2:
            raise UserError(
                f"robustness.sets: {source} has one class of {subject.data}, {common[0]}: give one with two"
            )
        others.append((other, split))
    return Opened(subject, tuple(others), learned)


def match(classes: Sequence[str], learned: Sequence[str], where: str) -> tuple[list[str], list[str], list[str]]:
    """Return the learned classes that a set has, its classes that were not learned, and learned ones that it lacks.

    Raises UserError where it has none of them.
    """
    y, missing = known(np.arange(len(classes)), classes, np.arange(len(learned)), learned, where)
    return (
        [learned[label] for label in np.unique(y[y >= 0])],
        missing,
        [name for label, name in enumerate(learned) if label not in y],
    )


def _classes(subject: Subject, split: str) -> list[str]:
    return occurring_classes(subject.open_split(split))


def run(opened: Opened, options: Options, runtime: Runtime) -> list[Result]:
    """Fit the probe once, and measure it on each set; see `robustness`."""
    start = time.perf_counter()
    train, test = match_labels(opened.home.train(runtime), opened.home.test(runtime))
    probe, fitted = linear.fit_classifier(train, test, linear.Options(), runtime)
    home = Answers.of(fitted, test, opened.home.open_split(opened.home.test_split))
    others = [
        Answers.of(fitted, other.features(split, runtime), other.open_split(split)) for other, split in opened.others
    ]
    about = {"protocol": "robustness", "metric": "top1", "model": test.model, "seeds": probe.seeds}
    about |= {"recipe": f"linear probe of {train.data}, {probe.recipe}", "converged": probe.converged}
    results = []
    for answers in (home, *others):
        shared = answers if answers is home else answers.within(np.unique(answers.y))
        details = {
            **shared.details(train),
            "temperature": None if fitted.beta is None else 1 / fitted.beta,
            "chosen_by": probe.details["chosen_by"],
        }
        if answers is not home:
            details |= {"source": str(answers.split.source), "home": train.data, "splits": [answers.split.split]}
        estimates = shared.estimates(train, fitted.beta, runtime.seed)
        if answers is not home and len(there := home.within(np.unique(answers.y))):
            estimates["drop"] = difference_of_shares(there.accuracy, shared.accuracy)
        results.append(
            Result.from_estimate(
                shared.accuracy,
                data=shared.features.data,
                others=estimates,
                digests={"train": train.digest, "test": answers.features.digest},
                leaky=unseen.is_leaky(shared.in_train(train)),
                seconds=time.perf_counter() - start,
                details=details,
                outcomes=shared.right,
                groups=shared.features.groups,
                largest=right_by_largest(shared.y),
                paired_on=rows_digest(shared.features.ids, shared.y),
                **about,
            )
        )
        start = time.perf_counter()
    _write([home, *others], options, runtime)
    return results


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of a probe for the images of a set.

    features: of n images. split: that they are of. scores: (n, K). y: (n,) int64. classes: names of all K.
    """

    features: Features
    split: Split
    scores: np.ndarray
    y: np.ndarray
    classes: tuple[str, ...]

    @classmethod
    def of(cls, fitted: linear.Fitted, features: Features, split: Split) -> "Answers":
        """Return the answers for images whose class was learned."""
        y, _ = known(features.y, features.classes, np.arange(len(fitted.classes)), fitted.classes, features.data)
        rows = np.argsort(features.ids, kind="stable")  # the draws of intervals do not depend on the listing
        rows = rows[y[rows] >= 0]
        features, y = features.take(rows), y[rows]
        with torch.inference_mode():
            blocks = [fitted.layers(torch.from_numpy(np.array(x))) for x in _blocks(features.x)]
        return cls(features, split, torch.cat(blocks).double().numpy(), y, fitted.classes)

    def within(self, labels: np.ndarray) -> "Answers":
        """Only the images of some classes, told among these alone."""
        rows = np.isin(self.y, labels)
        names = tuple(self.classes[label] for label in labels)
        y, scores = np.searchsorted(labels, self.y[rows]), self.scores[rows][:, labels]
        return Answers(self.features.take(rows), self.split, scores, y, names)

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def right(self) -> np.ndarray:
        return top_class(self.scores) == self.y

    @property
    def accuracy(self) -> Estimate:
        return share(self.right, self.features.groups)

    def in_train(self, train: Features) -> np.ndarray:
        return np.isin(self.features.images, train.images)

    def estimates(self, train: Features, beta: float | None, seed: int) -> dict[str, Estimate]:
        """The numbers beside the accuracy. beta: inverse temperature."""
        groups = self.features.groups
        beside = {"mean_per_class": mean_per_class(self.right, self.y, groups)}
        beside |= unseen.beside(self.in_train(train), lambda rows: share(self.right[rows], unseen.take(groups, rows)))
        beside |= measure_probabilities(self.scores, self.y, groups, seed)
        if beta is None:
            return beside
        after = measure_probabilities(beta * self.scores, self.y, groups, seed)
        return beside | {f"{name}{SCALED}": number for name, number in after.items()}

    def details(self, train: Features) -> dict[str, Any]:
        near = near_in_train([train.likeness], self.features.likeness)
        largest = float(np.bincount(self.y).max() / len(self))
        told = {"classes": len(self.classes), "bins": BINS, "largest_class": largest}
        return {**told, **unseen.details(self.in_train(train), near)}

    def sort(self) -> Sorted:
        answers = top_class(self.scores)
        sure = softmax(self.scores)[np.arange(len(self)), answers]
        return Sorted(self.split, self.features.ids, self.y, answers, sure, self.classes, self.features.groups)


def _blocks(x: np.ndarray) -> list[np.ndarray]:
    return np.array_split(x, -(-len(x) // BLOCK))


def _write(sets: Sequence[Answers], options: Options, runtime: Runtime) -> None:
    """Write the accuracy of each class, and draw the worst ones of each set."""
    if runtime.out is None or rank() != 0:
        return
    folder, home = Path(runtime.out), name_of(sets[0].features.data)
    sorts = [answers.within(np.unique(answers.y)).sort() for answers in sets]
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / f"robustness-{home}.csv"
    write_classes(sorts, table)
    runtime.say(f"table: {table.name}")
    for number, images in enumerate(sorts if options.worst else ()):
        name = home if not number else f"{home}-{number}-{name_of(images.split.name)}"
        title = f"{sets[0].features.model}: the worst classes of {images.split.name}"
        if draw_worst(images, options.worst, title, path := folder / f"robustness-{name}.png"):
            runtime.say(f"picture: {path.name}")


def beside(result: Result) -> tuple[str, ...]:
    """The drop from the test images of the data."""
    return among(result, "drop")


def plan(opened: Opened, task: Task, runtime: Runtime) -> list[tuple[str, str]]:
    """A line for each set on the classes that it shares."""
    lines = [("", f"{task.name} on {task.source}")]
    for other, split in opened.others:
        common, missing, absent = match(_classes(other, split), opened.learned, str(other.data))
        parts = [f"{len(common)} of {counted(len(opened.learned), 'class')}"]
        parts += [f"without {list_names(absent)}"] if absent else []
        parts += [f"not learned and left out: {list_names(missing)}"] if missing else []
        lines.append(("", f"  {other.data} ({split}): {'; '.join(parts)}"))
    return lines


def remarks(judged: Sequence[Judged]) -> list[str]:
    """One table of all sets."""
    lines = [["set", "accuracy", "drop", "loss (nats)", "Brier (0 to 2)", "calibration error"]]
    for result in (result for member in judged for result in member.results):
        model = f"{result.model} on " if len(judged) > 1 else ""
        lines.append([f"{model}{result.data}", with_interval(result.estimate), *_cells(result, "drop", *PROBABILITIES)])
        if result.details.get("temperature"):
            name = f"  at temperature {result.details['temperature']:.3g}"
            lines.append([name, "", "", *_cells(result, *(f"{key}{SCALED}" for key in PROBABILITIES))])
    note = f"loss: negative log-likelihood; calibration error: {BINS} bins of equally many images"
    held = "; temperature: fitted on held-out training images" if any("temp" in line[0] for line in lines) else ""
    return [*align(lines).splitlines(), note + held]


def _cells(result: Result, *names: str) -> list[str]:
    """The numbers without their units, but for percent; "" for those that are not there."""
    numbers = (result.others.get(name) for name in names)
    return [
        "" if number is None else with_interval(number if number.unit == "fraction" else replace(number, unit=""))
        for number in numbers
    ]


terminal = Terminal(classifies=True, plan=plan, remarks=remarks)
