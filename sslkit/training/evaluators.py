"""Evaluators: what a run is measured by at its start, every `eval.every` epochs and at its end, by code of the caller.

`sslkit.pretrain(evaluators=...)` takes them, and `evaluation.evaluators` makes them of protocols and labelled data. An
evaluator gets a copy of the network: nothing of the training changes, neither weights nor random numbers.
"""

import copy
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch

from sslkit.composition.method import Method
from sslkit.data.resizing import Resizing
from sslkit.errors import RunFailed, UserError, format_value, nearest
from sslkit.models.digest import weights_digest
from sslkit.models.model import Model
from sslkit.numerics.curves import EVALUATED, LOWER, SECONDS, UPPER
from sslkit.runtime.callers import process_kept
from sslkit.runtime.device import generators_restored
from sslkit.runtime.distributed import alone
from sslkit.runtime.loop import Hook, Loop
from sslkit.runtime.waiting import together
from sslkit.terminal import say
from sslkit.training.config import Config
from sslkit.training.data import Data
from sslkit.training.monitor import History

FRACTION = "fraction"


@dataclass(frozen=True)
class Measure:
    """A number of an evaluator.

    value, low, high: it, and the ends of its 95 % interval, None without. unit: a fraction is shown in percent.
    better: 1 where more is better, -1 where less is, 0 where neither: weights are not chosen by it.
    """

    value: float
    low: float | None = None
    high: float | None = None
    unit: str = FRACTION
    better: int = 1

    def __str__(self) -> str:
        scale, suffix, digits = (100, " %", ".1f") if self.unit == FRACTION else (1, f" {self.unit}".rstrip(), ".3g")
        ends = "" if self.low is None else f" ({scale * self.low:{digits}} to {scale * self.high:{digits}})"
        return f"{scale * self.value:{digits}}{suffix}{ends}"


Measures = dict[str, dict[str, Measure]]  # by evaluator and name; the first of an evaluator is its main one


class Evaluator(Protocol):
    """What `sslkit.pretrain(evaluators=...)` takes. The first process calls it, while the others wait.

    name: for lines, columns and `eval.by`; each has its own. The model is in eval mode, on the device of the run.
    """

    name: str

    def check(self, model: Model) -> None:
        """Open the data, and check them and the network. Raises UserError before the run computes anything."""

    def __call__(self, model: Model) -> Mapping[str, Measure]:
        """Return the measures of a network by their names, the same ones at every call."""


def check_evaluators(evaluators: Sequence[Evaluator], config: Config, data: Data, method: Method) -> None:
    """Let each evaluator check the network. Raises UserError, also for names, and `eval.by`, that do not fit."""
    names = [getattr(evaluator, "name", None) for evaluator in evaluators]
    for evaluator, name in zip(evaluators, names, strict=True):
        if not isinstance(name, str) or not callable(evaluator) or not callable(getattr(evaluator, "check", None)):
            raise UserError(
                f"evaluators: {type(evaluator).__name__} is none: it needs a text `name`, `check(model)`, and a call "
                "that returns {name: sslkit.Measure}; evaluation.evaluators makes them of protocols"
            )
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two evaluators are called {twice}: give each its own name")
    if config.eval.protocols is not None and not evaluators:
        raise UserError(
            "eval.protocols= is for recipes/train.py, which makes evaluators of them; in Python give "
            "evaluators=evaluation.evaluators(...)"
        )
    beside = [name for name in ("data", "protocol_options") if getattr(config.eval, name) is not None]
    if beside and config.eval.protocols is None:
        raise UserError(f"eval.{beside[0]}= is of eval.protocols=: give these too, such as eval.protocols=[knn]")
    if config.eval.by is not None and config.keep != "best" and config.stop is None:
        raise UserError(f"eval.by={config.eval.by} chooses weights: give keep=best or stop= too, or leave it out")
    if config.eval.by is not None and config.eval.by not in names:
        there = nearest(config.eval.by, names) if names else "there is none: eval.protocols= names them"
        raise UserError(f"eval.by={config.eval.by} is no evaluator: {there}")
    model = copy_of(method, data) if evaluators else None
    for evaluator in evaluators:
        with process_kept():
            evaluator.check(model)


def copy_of(method: Method, data: Data) -> Model:
    """The network as it is now, with the preparation of its images: a copy."""
    body, train = copy.deepcopy(method.backbone), data.train
    prepared = Resizing.usual(data.image_size), *map(tuple, method.normalize)
    stride = train.in_card.get("stride")
    return Model(body, "this run", weights_digest(body.net), *prepared, scale=train.scale, stride=stride)


class Evaluations(Hook):
    """Measures by the evaluators at the start and every `every` epochs, and notes it in the history.

    method: before it is trained. scores: (1,) of the measure `eval.by`, higher is better; None of an epoch that is not
    evaluated.
    """

    def __init__(
        self, evaluators: Sequence[Evaluator], config: Config, data: Data, method: Method, history: History
    ) -> None:
        self.evaluators, self.history, self.every, self.by = evaluators, history, config.eval.every, config.eval.by
        self.model = copy_of(method, data) if evaluators else None
        self.of_epochs: dict[int, Measures] = {}  # 0: the start
        self.seconds: dict[str, float] = {}
        self.scores: np.ndarray | None = None

    def begin(self, loop: Loop) -> None:
        if loop.step == 0 and 0 not in self.of_epochs:
            self._note(loop, 0)
            if loop.is_main:
                say.lines("\n".join(f"before    {text}" for text in self._lines(0)))
                self.history.add_start(loop, self._columns(0))

    def epoch_end(self, loop: Loop) -> None:
        self.scores, number = None, loop.epoch + 1
        if number < loop.epochs and number % self.every:
            return
        self._note(loop, number)
        if loop.is_main:
            self.history.noted |= self._columns(number)
            self.history.below = [f"  {text}" for text in self._lines(number)]
            if self.by is not None:
                main = self._main_measure(number)
                self.scores = np.array([main.better * main.value])

    def measure(self, method: Method, device: torch.device) -> Measures:
        """Measure a network by every evaluator. Raises RunFailed, with the evaluator, for what it raises."""
        self.model.backbone.load_exported(method.backbone.export())
        self.model.to(device).eval()
        self.model = replace(self.model, digest=weights_digest(self.model.net))
        measures: Measures = {}
        for evaluator in self.evaluators:
            began = time.perf_counter()
            with _draws_restored(device), process_kept():
                try:
                    measures[evaluator.name] = _check_measures(evaluator(self.model))
                except UserError as error:
                    raise RunFailed(f"evaluator {evaluator.name}: {error}") from error
            self.seconds[evaluator.name] = time.perf_counter() - began
        return measures

    def of_card(self, method: Method, epoch: int | None) -> dict[str, Any]:
        """The field of the card on the network that is kept. epoch: whose weights it has; None: of none."""
        if not self.evaluators:
            return {}
        device = next(method.parameters()).device
        last = self.of_epochs.get(epoch) or self.measure(method, device)
        first = self.of_epochs.get(0, {})
        return {"evaluators": {"before": _plain(first), "after": _plain(last)}}

    def _note(self, loop: Loop, epoch: int) -> None:
        with together("the evaluators"):
            if loop.is_main:
                with alone():
                    self.of_epochs[epoch] = self.measure(loop.module.method, loop.device)
                if self.by is not None and not self._main_measure(epoch).better:
                    raise UserError(f"eval.by={self.by}: of this measure neither more nor less is better")

    def _main_measure(self, epoch: int) -> Measure:
        return next(iter(self.of_epochs[epoch][self.by].values()))

    def _lines(self, epoch: int) -> list[str]:
        """`knn/clipart top1 41.2 % (38.0 to 44.4), 2.1 s`: the main measure of each evaluator."""
        mains = {name: next(iter(numbers.items())) for name, numbers in self.of_epochs[epoch].items()}
        return [f"{name} {measure} {x}, {self.seconds[name]:.1f} s" for name, (measure, x) in mains.items()]

    def _columns(self, epoch: int) -> dict[str, float]:
        columns: dict[str, float] = {}
        for name, numbers in self.of_epochs[epoch].items():
            for measure, number in numbers.items():
                ends = {"": number.value, LOWER: number.low, UPPER: number.high}
                columns |= {f"{EVALUATED}{name}/{measure}{end}": x for end, x in ends.items() if x is not None}
            columns[f"{EVALUATED}{name}{SECONDS}"] = self.seconds[name]
        return columns

    @property
    def columns(self) -> dict[str, bool]:
        """The columns of the main measures, and whether each is a fraction."""
        mains = {name: next(iter(numbers.items())) for name, numbers in self.of_epochs.get(0, {}).items()}
        return {f"{EVALUATED}{name}/{measure}": x.unit == FRACTION for name, (measure, x) in mains.items()}

    def state(self) -> dict[str, Any]:
        return {"of_epochs": {epoch: _plain(measures) for epoch, measures in self.of_epochs.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        self.of_epochs = {epoch: measures_of(plain) for epoch, plain in state["of_epochs"].items()}


def measures_of(plain: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Measures:
    """The measures of a checkpoint or a card."""
    return {
        name: {measure: Measure(**number) for measure, number in numbers.items()} for name, numbers in plain.items()
    }


def _check_measures(numbers: Any) -> dict[str, Measure]:
    if not isinstance(numbers, Mapping) or not numbers or {type(x) for x in numbers.values()} != {Measure}:
        raise UserError(f"it must return {{name: sslkit.Measure}}, not {format_value(numbers)}")
    return dict(numbers)


def _plain(measures: Measures) -> dict[str, dict[str, dict[str, Any]]]:
    return {
        name: {measure: asdict(number) for measure, number in numbers.items()} for name, numbers in measures.items()
    }


@contextmanager
def _draws_restored(device: torch.device) -> Iterator[None]:
    """Restore the global generators of PyTorch, NumPy and Python after the block."""
    before = np.random.get_state(), random.getstate()
    try:
        with generators_restored(device):
            yield
    finally:
        np.random.set_state(before[0])
        random.setstate(before[1])
