"""Terminal output of detection and segmentation: the plan, the pictures, and the next command."""

from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.protocols.base import Judged, Task, Terminal, defaults_of_all
from evaluation.results import OUT
from evaluation.tasks.detection.measure import Opened, plan_training
from evaluation.tasks.detection.options import SHARED, Options
from evaluation.tasks.detection.recipes import TASKS, USUAL, source_of
from evaluation.tasks.detection.results import describe
from sslkit.models.detectors.detector import check_fit
from sslkit.models.loading import name_of
from sslkit.models.model import Model
from sslkit.models.using import line_to_predict
from sslkit.runtime.context import Runtime
from sslkit.runtime.distributed import world_size
from sslkit.terminal.say import words

UNTOLD = ("progress", "workers", "save_seconds", "device")  # they change no number


def fits(model: Model, options: Options) -> None:
    """Check that a detector can be built on the network. Raises UserError."""
    check_fit(model, options.resolve_recipe().arch)


def plan(opened: Opened, task: Task, runtime: Runtime) -> list[tuple[str, str]]:
    """The sizes of the data, the schedule, and the number of trials."""
    options, train, test = task.options.resolve_recipe(), opened.train, opened.test
    training = plan_training(opened, options, runtime)
    schedule = training.schedule
    left_out = f" ({train.left_out:,} without an object are left out: empty=keep takes them)" if train.left_out else ""
    objects = f"{int(train.instances.counts.sum()):,} objects of {len(train.classes)} classes"
    ranks = f" on {world_size()} processes" if world_size() > 1 else ""
    trials = "1 trial" if options.trials == 1 else f"{options.trials} trials"
    return [
        ("data", f"{train.name}: {len(train):,} training images with {objects}{left_out}, {len(test):,} test images"),
        ("plan", describe(training, opened.model, train, test)),
        ("", f"{trials} of {schedule.steps:,} steps of {schedule.batch_size} images{ranks}"),
    ]


def remarks(judged: Sequence[Judged]) -> list[str]:
    """The files of the pictures, the kept detectors and how they predict, and the seconds of all trials."""
    pictures = {
        str(entry.folder / result.protocol / name): None
        for entry in judged
        for result in entry.results
        for name in result.details["pictures"]
    }
    seconds = sum(result.seconds for entry in judged for result in entry.results)
    return [f"pictures  {', '.join(pictures)}", *lines_of_kept(judged), f"seconds   {seconds:.0f}"]


def lines_of_kept(judged: Sequence[Judged]) -> list[str]:
    """The kept models, and how the first of them predicts."""
    results = [(entry.folder, result) for entry in judged for result in entry.results]
    entries = [str(folder / name) for folder, result in results for name in result.details.get("kept", ())]
    lines = [f"kept      {folder}" for folder in dict.fromkeys(entries)]
    if entries:
        lines.append(line_to_predict(entries[0]))
    return lines


def following(judged: Sequence[Judged], task: Task, place: Mapping[str, Any]) -> str:
    """The next command after models were judged by a task; see `hint`."""
    options = dict(vars(task.options.resolve_recipe()))
    (kind,) = (kind for kind, protocol in TASKS.items() if protocol == task.name)
    words_told = {"data": source_of(task.source, options.pop("recipe")), "task": kind, **options}
    words_told |= {name: value for name, value in place.items() if name in SHARED}
    return hint([entry.model for entry in judged], [entry.asked for entry in judged], words_told)


def hint(models: list[Model], sources: Sequence[Any], plan: Mapping[str, Any]) -> str:
    """The next command to type: beside the same network untrained, over more seeds, or all on one page; "" for none.

    sources: what the models were asked for by. plan: every option; those that are usual are left out.
    """
    entries = [model.entry for model in models if model.entry]
    if len(models) > 1 and entries:
        where = words({"zoo": entries[0].folder.parent, "evaluation": plan["out"]})
        return f"python recipes/report.py {where}   # all results of a zoo on one page"
    if not entries and (len(models) > 1 or plan["trials"] > 1):
        return ""
    name = name_of(sources[0], models[0])
    told = {"checkpoint": [name, f"random:{name}"] if entries else name, "data": plan["data"], **plan}
    more = told["trials"] == 1
    told["trials"] = 3 if more else told["trials"]
    typed = words({key: value for key, value in told.items() if key not in UNTOLD and value != _usual(key)})
    why = "beside the same network untrained" if entries else "how much the seed decides"
    return f"python recipes/detect.py {typed}   # {why}"


def _usual(name: str) -> Any:
    """The default of an option of recipes/detect.py; None where it is the recipe's or the model's."""
    return {**defaults_of_all(), **vars(Options()), **USUAL, "out": OUT}.get(name)


TERMINAL = Terminal(usual=None, fits=fits, plan=plan, remarks=remarks, following=following)
