"""evaluate(model, data, protocols): every protocol asked for, on features that are extracted once; results are kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation import protocols as family
from evaluation.datasets import Split, open_split, overlap
from evaluation.features.checks import checked
from evaluation.features.extraction import check_extraction
from evaluation.features.models import LoadedModel, load_model
from evaluation.judging.pictures import draw
from evaluation.protocols.base import Subject
from evaluation.results import store
from evaluation.results.result import Result
from sslkit import file_names, members
from sslkit.errors import UserError
from sslkit.settings import MOST_SEED

# What a model is judged by where nothing is asked for: embedded sets, each by what it is good for.
SUITE = {
    "fashion_mnist": ("linear", "knn", "crowding"),
    "clipart": ("linear", "knn", "crowding"),
    "glyphs": ("few_shot",),
}
MOST_FILES = 20_000  # to read in search of test images among the training images
DEFAULT = ("linear", "knn", "crowding")  # of data that are named


def evaluate(
    model: Any,
    data: Any = None,
    protocols: Sequence[str] | None = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    root: str | Path = "data",
    out: str | Path = "runs/evaluation",
    seed: int = 0,
    image_size: int | None = None,
    pictures: bool = False,
    trust: str | Sequence[str] | None = (),
    say: Callable[[str], None] = lambda line: None,
    **how: Any,
) -> list[Result]:
    """Judge one model; results are added to its zoo entry's results.jsonl, or below `out` where it is none.

    model, trust: see `evaluation.load_model`.
    data: one source or a list, see `evaluation.open_split`; None: the embedded suite, clothes and clip art for
        accuracy, letters of kept-back scripts for few-shot.
    protocols: names, default linear, knn and crowding, in the suite few_shot too.
    options: of protocols, {"few_shot": {"k_shot": 5}, ...}.
    seed: of every draw. say: called with a line when something is done. how: see `evaluation.extract` (cache, ...).
    pictures: also draw evaluation.png, and a map and the confusions of each data set whose images are classified.
    Raises UserError for unknown names, options and data before anything is extracted.
    """
    loaded = load_model(model, image_size=image_size, trust=trust)
    return prepared(loaded, data, protocols, options=options, root=root, out=out, seed=seed, **how).run(pictures, say)


@dataclass(frozen=True)
class Task:
    """A protocol on a source: what it opened, and its options."""

    source: Any
    name: str
    opened: Any
    options: Any


@dataclass(frozen=True)
class Evaluation:
    """One model's protocols, checked and ready to run.

    tasks: in their order. subjects: of the model, by source. folder: of the results.
    """

    tasks: Sequence[Task]
    subjects: Mapping[str, Subject]
    folder: Path

    def run(self, pictures: bool = False, say: Callable[[str], None] = lambda line: None) -> list[Result]:
        """Run every protocol and keep each result at once; see `evaluate`."""
        results: list[Result] = []
        previous = None
        make_folder(self.folder)
        for task in self.tasks:
            subject, images = self.subjects[str(task.source)], isinstance(task.opened, Subject)
            if images and task.source is not previous and (note := _twins(subject)):
                say(note)
            previous = task.source if images else previous
            say(f"{task.name} on {task.source}")
            for result in family.find(task.name).run(task.opened, task.options):
                results.append(subject.noted(result))
                store.append(self.folder, results[-1])
        if pictures:
            classified = dict.fromkeys(str(task.source) for task in self.tasks if task.name in ("linear", "knn"))
            drawn = draw(self.folder, results, map(self.subjects.get, classified))
            say(f"pictures: {', '.join(path.name for path in drawn)}")
        return results


def prepared(
    model: LoadedModel,
    data: Any,
    protocols: Sequence[str] | None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    root: str | Path = "data",
    out: str | Path = "runs/evaluation",
    seed: int = 0,
    **how: Any,
) -> Evaluation:
    """Open and check all that `evaluate` needs; nothing is written or computed. Raises UserError."""
    checked("seed", seed, int, least=0, most=MOST_SEED)
    check_extraction(**how)
    plan = planned(data, protocols)
    chosen = {name: _options(name, (options or {}).get(name, {})) for _, name in plan}
    folder = results_folder(model, out)
    subjects: dict[str, Subject] = {}
    tasks = []
    for source, name in plan:  # a source that is not there is refused before another is extracted
        subject = subjects.setdefault(str(source), Subject(model, source, root, seed, how, folder))
        tasks.append(Task(source, name, family.find(name).open(subject, chosen[name]), chosen[name]))
    return Evaluation(tasks, subjects, folder)


def make_folder(folder: Path) -> None:
    """Make the folder of a model's results. Raises UserError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder} ({error.strerror}): give another out=") from error


def _twins(subject: Subject) -> str:
    """Return a note on test images that are also training images; "" without any, or without such splits."""
    if not {"train", "test"} <= set(subject.splits):
        return ""
    how = {"root": subject.root, "counts": "warn", "on_error": "skip"}
    test, *others = (open_split(subject.data, part, **how) for part in ("test", *subject.learns_from))
    if test.images.decodes and sum(map(len, others)) > MOST_FILES:
        return f"note: whether {subject.data} has test images among its training images was not checked, it is large"
    try:
        twins = {name for other in others for _, name in overlap(other, test)}
    except UserError as error:
        return f"note: whether test images are among the training images was not checked: {error}"
    said = f"note: {len(twins)} of {len(test)} test images of {subject.data} are in its training images too"
    return said if twins else ""


def planned(data: Any, protocols: Sequence[str] | None) -> list[tuple[Any, str]]:
    """(source, protocol) pairs in the order in which they are run."""
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
        return pairs + [("fashion_mnist", name) for name in wanted if name not in embedded]
    sources = list(data) if isinstance(data, (list, tuple)) else [data]
    return [(source, name) for source in sources for name in (protocols or DEFAULT)]


def results_folder(model: LoadedModel, out: str | Path) -> Path:
    """Return the folder of a model's results: its zoo entry, or a folder of its name."""
    return model.entry.folder if model.entry else Path(out) / file_names.made_of(model.name)


def _options(name: str, given: Mapping[str, Any]) -> Any:
    own = family.find(name).Options
    return own(**members.check_options(own, given, f"protocol {name}"))
