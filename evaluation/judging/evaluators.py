"""Protocols as evaluators of a training: `sslkit.pretrain(evaluators=...)`, `recipes/train.py eval.protocols=[knn]`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from evaluation import protocols as family
from evaluation.datasets import Reading, note_of
from evaluation.judging.run import Shared, make_tasks
from evaluation.protocols.base import Subject, Task
from evaluation.results.statistics import Estimate
from evaluation.results.tables import DOWN, UP, direction
from sslkit.data.image_options import VALUES, DataOptions
from sslkit.errors import UserError
from sslkit.models.model import Model
from sslkit.options.members import classes
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.runtime.processes import is_main
from sslkit.terminal import say
from sslkit.training.config import Config
from sslkit.training.evaluators import Measure

BETTER = {UP: 1, DOWN: -1}


@public("columns", "root", "counts", "on_error", "cache", "seed", "workers", "progress")
def evaluators(
    protocols: str | Sequence[str],
    data: Any,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    reading: Reading,
    runtime: Runtime,
) -> list["ProtocolEvaluator"]:
    """Return each protocol on each data set as an evaluator of a training.

        judges = evaluation.evaluators(["knn", "retrieval"], ["clipart", "path/to/labelled"])
        sslkit.pretrain(method="byol", data="path/to/images", evaluators=judges)

    protocols, options: see `evaluate`. data: one source or a list, see `evaluation.open_split`.
    Their labels are read by the protocols alone, on a copy of the network. Features are extracted once for all
    protocols of a data set, in the time of the first. Nothing is kept on disk but the index of files.
    Raises UserError for unknown names and options.
    """
    return make_evaluators(protocols, data, options, reading, runtime)


def make_evaluators(
    protocols: str | Sequence[str],
    data: Any,
    options: Mapping[str, Mapping[str, Any]] | None,
    reading: Reading,
    runtime: Runtime,
    unnamed: str | None = None,
) -> list["ProtocolEvaluator"]:
    """The evaluators of `evaluators`. unnamed: a data set that is not in their names."""
    opened: Shared = {}
    tasks = make_tasks(data, protocols, options, reading, opened)
    sets = Sets(reading, replace(runtime, cache=None, out=None), opened)
    names = [family.key(task.name) + ("" if task.source == unnamed else f"/{task.source}") for task in tasks]
    return [ProtocolEvaluator(name, task, sets) for name, task in zip(names, tasks, strict=True)]


def of_run(settings: Mapping[str, Any]) -> list["ProtocolEvaluator"]:
    """The evaluators of a run's settings, `eval.protocols` and beside it.

    Raises UserError as `evaluators` does, and where the run learns from the labels of the images that they test on.
    """
    config = Config.from_mapping(settings)
    how = {option.name: getattr(config, option.name) for option in fields(DataOptions) if option.name not in VALUES}
    reading = Reading(**how, cache=config.cache)  # the model scales values as in its training
    runtime = Runtime(seed=config.seed, workers=config.workers, progress=config.progress)
    source = config.data.source
    data = source if config.eval.data is None else config.eval.data
    tests_on_own = source in ([data] if isinstance(data, str) else data)
    needs_labels = classes(config.method_name)["objective"].needs_labels
    if tests_on_own and needs_labels and note_of(source, config.cache, config.columns):
        raise UserError(
            f"eval.protocols: {source} has no test images of its own, and method={config.method_name} learns from the "
            "labels of all others: make test/ in it, or give eval.data="
        )
    unnamed = source if config.eval.data is None else None
    return make_evaluators(config.eval.protocols, data, config.eval.protocol_options, reading, runtime, unnamed)


@dataclass
class Sets:
    """The data sets of evaluators, opened once, and the features of the newest model on the last of them."""

    reading: Reading
    runtime: Runtime
    opened: Shared
    last: Subject | None = None

    def subject(self, model: Model, source: Any) -> Subject:
        """The model on a data set, the same one for all protocols in a row."""
        if self.last is None or self.last.model is not model or self.last.data is not source:
            self.last = Subject(model, source, self.reading, self.opened.setdefault(str(source), {}))
        return self.last


@dataclass
class ProtocolEvaluator:
    """A protocol on a data set; see `sslkit.training.evaluators.Evaluator`."""

    name: str
    task: Task
    sets: Sets = field(repr=False)

    def check(self, model: Model) -> None:
        """Open the data for the network. Raises UserError as the protocol does, before anything is computed."""
        try:
            subject, _ = self._open(model)
        except UserError as error:
            raise UserError(f"eval.protocols: {self.name}: {error}") from error
        if is_main() and subject.note:
            say.line(f"note      {self.name}: {subject.data} has no test images of its own; {subject.note}")

    def __call__(self, model: Model) -> dict[str, Measure]:
        """Return the values of the protocol's results by their metrics, with those that stand beside them in tables."""
        protocol, runtime = family.find(self.task.name), replace(self.sets.runtime, device=str(model.device))
        beside, (_, opened) = protocol.beside, self._open(model)
        measures: dict[str, Measure] = {}
        for result in protocol.run(opened, self.task.options, runtime):
            measures[result.metric] = as_measure(result.estimate)
            measures |= {name: replace(as_measure(result.others[name]), better=0) for name in beside(result)}
        return measures

    def _open(self, model: Model) -> tuple[Subject, Any]:
        protocol = family.find(self.task.name)
        protocol.terminal.fits(model, self.task.options)
        self.task = protocol.terminal.agreed([model], self.task)
        subject = self.sets.subject(model, self.task.source)
        return subject, protocol.open(subject, self.task.options)


def as_measure(number: Estimate) -> Measure:
    """The number of a protocol as one of a training."""
    low, high = number.interval or (None, None)
    better = 1 if number.unit == "fraction" else BETTER.get(direction(number), 0)
    return Measure(number.value, low, high, number.unit, better)
