"""evaluate(model, data, protocols): every protocol asked for, on features that are extracted once; results are kept."""

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from evaluation import protocols as family
from evaluation.datasets import AS_USUAL, Reading, Split
from evaluation.datasets._labels import NoLabels
from evaluation.features.extraction import check
from evaluation.features.seen import Judged, seen
from evaluation.judging.pictures import draw
from evaluation.protocols.base import Subject, Task
from evaluation.results import OUT, store, unseen
from evaluation.results.result import Result
from evaluation.tuning.processes import process_group
from sslkit.data.copies import mend_of_near
from sslkit.data.images import Images
from sslkit.data.sources.named import reusable
from sslkit.data.sources.objects import is_several
from sslkit.errors import UserError
from sslkit.files.writing import name_of
from sslkit.models.loading import Loading
from sslkit.models.model import Model
from sslkit.options import members
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime, silent
from sslkit.runtime.distributed import rank

# What a model is judged by where nothing is asked for: embedded sets, each by what it is good for.
SUITE = {
    "fashion_mnist": ("linear", "knn", "crowding"),
    "clipart": ("linear", "knn", "crowding"),
    "glyphs": ("few_shot",),
}
DEFAULT = ("linear", "knn", "crowding")  # of data that are named
WITHOUT_LABELS = ("view_retrieval",)  # of those without any
Tell = Callable[[str, str], None]
Shared = dict[str, dict[Hashable, Any]]  # what is open of each source, see `prepare`


@public()
def evaluate(
    model: Any,
    data: Any = None,
    protocols: Sequence[str] | None = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    out: str | Path = OUT,
    pictures: bool = False,
    say: Callable[[str], None] = silent,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> list[Result]:
    """Evaluate one model; results are added to its zoo entry's results.jsonl, or below `out` where none can be.

        results = evaluation.evaluate("runs/zoo/NAME", "path/to/images", ["linear", "knn"])
        print(evaluation.table(results))

    model: see `sslkit.load`.
    data: one source or a list, see `evaluation.open_split`; None: the embedded suite, clothes and clip art for
        accuracy, letters of kept-back scripts for few-shot.
    protocols: names, or `package.module:Options` of your own; default linear, knn and crowding, in the suite few_shot
        too; view_retrieval of data without labels.
    options: of protocols, {"few_shot": {"k_shot": 5}, ...}. say: called with a line when something is done.
    pictures: also draw evaluation.png, and a map and the confusions of each data set whose images are classified.
    Raises UserError for unknown names, options and data before anything is extracted.
    """
    shared: Shared = {}
    tasks = make_tasks(data, protocols, options, reading, shared)
    loaded, runtime = loading.load(model), replace(runtime, out=out)
    check(runtime)
    with process_group(runtime):
        tasks = complete_tasks([loaded], tasks)
        ready = prepare(loaded, tasks, reading, runtime, tell=lambda label, text: say(text), shared=shared)
        return ready.run(pictures)


@dataclass(frozen=True)
class Evaluation:
    """One model's protocols, checked and ready to run.

    tasks: in their order, each with what its protocol opened. subjects: of the model, by source. runtime: its `out` is
    the folder of the results. tell: called with a label ("" for most) and a text.
    """

    tasks: Sequence[tuple[Task, Any]]
    subjects: Mapping[str, Subject]
    runtime: Runtime
    tell: Tell

    @property
    def folder(self) -> Path:
        return Path(self.runtime.out)

    def run(self, pictures: bool = False) -> list[Result]:
        """Run every protocol and keep each result at once; see `evaluate`."""
        results: list[Result] = []
        told: set[tuple[str, str]] = set()

        def tell_once(source: Any, note: str) -> None:
            if note and (str(source), note) not in told:
                told.add((str(source), note))
                self.tell("", f"note: {note}")

        make_folder(self.folder)
        for task, opened in self.tasks:
            protocol, subject = family.find(task.name), self.subjects[str(task.source)]
            seen_note = _seen(subject, task)
            if isinstance(opened, Subject):
                tell_once(task.source, _held_out(subject))
            tell_once(task.source, seen_note)
            for line in protocol.terminal.plan(opened, task, self.runtime):
                self.tell(*line)
            for result in protocol.run(opened, task.options, self.runtime):
                results.append(_with_note(subject.with_notes(result), seen_note))
                tell_once(task.source, _copies(subject, results[-1]))
                if rank() == 0:
                    store.append(self.folder, results[-1])
        if pictures and results and rank() == 0:
            self._draw(results)
        return results

    def _draw(self, results: Sequence[Result]) -> None:
        classified = [task for task, _ in self.tasks if family.find(task.name).terminal.classifies]
        sources = dict.fromkeys(str(task.source) for task in classified)
        drawn = draw(results, map(self.subjects.get, sources), self.runtime)
        self.tell("", f"pictures: {', '.join(path.name for path in drawn)}")


def make_tasks(
    data: Any,
    protocols: Sequence[str] | None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    reading: Reading = AS_USUAL,
    shared: Shared | None = None,
) -> list[Task]:
    """The protocols on their sources in the order in which they are run, with checked options. Raises UserError.

    shared: see `prepare`; where no protocol is named, the test images are opened to see whether they have labels.
    """
    plan = list_pairs(data, protocols, reading, shared)
    keys = {name: family.key(name) for _, name in plan}
    for name in (options or {}).keys() - keys.values():
        family.find(name)
    chosen = {name: _options(name, (options or {}).get(keys[name], {})) for name in keys}
    return [Task(name, source, chosen[name]) for source, name in plan]


def check_fits(model: Model, tasks: Sequence[Task]) -> None:
    """Check that every protocol can judge the network, which `open` checks too. Raises UserError."""
    for task in tasks:
        family.find(task.name).terminal.fits(model, task.options)


def complete_tasks(models: Sequence[Model], tasks: Sequence[Task]) -> list[Task]:
    """The tasks, completed by what the models agree on."""
    return [family.find(task.name).terminal.agreed(models, task) for task in tasks]


def prepare(
    model: Model,
    tasks: Sequence[Task],
    reading: Reading,
    runtime: Runtime,
    *,
    tell: Tell,
    shared: Shared | None = None,
) -> Evaluation:
    """Open and check all that `evaluate` needs; nothing is written or computed. Raises UserError.

    shared: what is open of each source, for all models that are judged on them; it is filled here.
    """
    shared = {} if shared is None else shared
    runtime = replace(runtime, out=results_folder(model, runtime.out), say=partial(tell, ""))
    subjects: dict[str, Subject] = {}
    opened = []
    for task in tasks:  # a source that is not there is refused before another is extracted
        name = str(task.source)
        if name not in subjects:
            subjects[name] = Subject(model, task.source, reading, shared.setdefault(name, {}))
        opened.append((task, family.find(task.name).open(subjects[name], task.options)))
    return Evaluation(opened, subjects, runtime, tell)


def make_folder(folder: Path) -> None:
    """Make the folder of a model's results. Raises UserError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder} ({error.strerror}): give another out=") from error


def _with_note(result: Result, note: str) -> Result:
    """The result with one more note in its details, if there is one."""
    notes = "; ".join(filter(None, (result.details.get("notes"), note)))
    return replace(result, details={**result.details, "notes": notes}) if note else result


def _seen(subject: Subject, task: Task) -> str:
    """Return a note on test images that the network saw in its pretraining; "" where that is not known."""
    if not subject.model.card:  # before anything is opened
        return ""
    split = "train" if subject.note else subject.novel_split if task.name == "few_shot" else "test"
    how = subject.reading.cache, subject.reading.columns.by_instance
    judged = subject.once(("whole", split), lambda: Judged(subject.data, split, *how))
    return seen(subject.model.card, judged)


def _copies(subject: Subject, result: Result) -> str:
    """Return a note on test images that are also in train, or near-copies of some, and what mends that; "" for none."""
    note = unseen.note_of(result)
    if not unseen.has_near(result):
        return note
    mend = mend_of_near(
        subject.reading.columns, subject.data, is_given=bool(unseen.TESTED in result.details and not subject.note)
    )
    return "" if mend is None else f"{note}{mend}"


def _held_out(subject: Subject) -> str:
    """Return a note on test images that the source does not tell apart; "" for others."""
    return f"{subject.data} has no test images of its own; {subject.note}" if subject.note else ""


def list_pairs(
    data: Any, protocols: Sequence[str] | None, reading: Reading = AS_USUAL, shared: Shared | None = None
) -> list[tuple[Any, str]]:
    """(source, protocol) pairs in the order in which they are run. reading, shared: see `make_tasks`."""
    shared = {} if shared is None else shared
    protocols = [protocols] if isinstance(protocols, str) else protocols
    if protocols is not None and not len(protocols):
        raise UserError("protocols=[] names nothing to do; leave it out for the usual ones")
    if isinstance(data, (list, tuple)) and not data:
        raise UserError("data=[] names nothing to evaluate; leave it out for the embedded sets")
    if isinstance(data, Split):
        raise UserError("data must be a source with its splits, not one open split: give its name or its folder")
    if data is None:
        embedded = {name for fitting in SUITE.values() for name in fitting}
        wanted = protocols or embedded
        pairs = [(source, name) for source, fitting in SUITE.items() for name in fitting if name in wanted]
        return pairs + [(family.find(name).terminal.usual, name) for name in wanted if name not in embedded]
    sources = [reusable(source, reading.columns.by_instance) for source in (data if is_several(data) else [data])]
    named = {str(source): source for source in sources}
    if alike := [source for source in sources if isinstance(source, Images) and named[str(source)] is not source]:
        raise UserError(f"two data sets are called {alike[0]}: evaluate them one after the other")
    return [
        (source, name)
        for source in sources
        for name in (protocols or _usual(Subject(None, source, reading, shared.setdefault(str(source), {}))))
    ]


def _usual(subject: Subject) -> tuple[str, ...]:
    """The protocols of data where none is named. subject: without a model."""
    try:
        if subject.entry is None and "test" in subject.splits:  # published sets have labels
            subject.open_split("test")
    except NoLabels:
        return WITHOUT_LABELS
    return DEFAULT


def results_folder(model: Model, out: str | Path) -> Path:
    """Return the folder of a model's results: its zoo entry, or a folder of its name where that cannot be written."""
    if model.entry and os.access(model.entry.folder, os.W_OK):
        return model.entry.folder
    return Path(out) / name_of(model.name)


def _options(name: str, options: Mapping[str, Any]) -> Any:
    options_type = family.find(name).Options
    return options_type(**members.check_options(options_type, options, f"protocol {family.key(name)}"))
