"""Terminal output of detection: the plan, a bar for each trial, one table, the pictures, and the next command."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from evaluation.features.checks import device_of
from evaluation.features.models import LoadedModel
from evaluation.judging.command_line import name_of, words
from evaluation.judging.run import make_folder, results_folder
from evaluation.judging.summary import Opened, opened, print_differences, print_left_out, shown
from evaluation.judging.summary import described as model_line
from evaluation.protocols.detection import detection
from evaluation.protocols.detection.boxes import Boxes
from evaluation.protocols.detection.detector import check_fit
from evaluation.protocols.detection.measure import check_trials, open_splits, planned
from evaluation.protocols.detection.options import Options, Place
from evaluation.protocols.detection.recipes import RECIPES, USUAL
from evaluation.protocols.detection.results import described
from evaluation.protocols.segmentation import segmentation
from evaluation.results import store
from evaluation.results.result import Result
from evaluation.results.tables import table
from evaluation.tuning.processes import process_group
from sslkit import say
from sslkit.distributed import rank, world_size
from sslkit.errors import UserError
from sslkit.members import nearest

TASKS = {"boxes": detection, "masks": segmentation}
OUT = "runs/evaluation"
T = TypeVar("T", Options, Place)
UNTOLD = ("progress", "workers", "every", "device")  # they change no number


def judge(
    checkpoint: Any = None,
    zoo: str | Path | None = None,
    data: Any = None,
    *,
    recipe: str | None = None,
    task: str | None = None,
    out: str | Path = OUT,
    root: str | Path = Place.root,
    counts: str = Place.counts,
    device: str = Place.device,
    image_size: int | None = None,
    trust: str | Sequence[str] | None = (),
    **options: Any,
) -> list[Result]:
    """Judge one model or several and print the table; `recipes/detect.py` calls it.

    checkpoint, trust: see `evaluation.load_model`, of checkpoint a list too; or zoo: a folder of entries. data: see
        `evaluation.detection.open_boxes`. recipe: a name of RECIPES, which says all that is None here.
    task: "boxes" (protocol detection) or "masks" (segmentation). options: see
        `evaluation.protocols.detection.detection`; None is the recipe's.
    Each result is added to the zoo entry's results.jsonl, or below `out`. Under torchrun rank 0 speaks and writes.
    Returns the results of all. Raises UserError before anything is computed.
    """
    plan = _plan(recipe, {"data": data, "task": task, **options})
    source, task = plan.pop("data"), plan.pop("task")
    train, test = open_splits(source, root, masks=task == "masks", counts=counts)
    check_trials(plan["trials"], plan.get("seed", Place.seed))
    device_of(device)
    asked = opened(
        checkpoint, zoo, image_size=image_size, trust=trust, check=lambda model: check_fit(model, plan["arch"])
    )

    def judged(_: str, one: Opened) -> list[Result]:
        folder, results = results_folder(one.model, out), []
        if rank() == 0:
            _announce(one.model, train, test, task, plan)
            make_folder(folder)
        given = {"out": folder, "device": device, **plan}
        for result in TASKS[task](one.model, {"train": train, "test": test}, **given):
            results.append(result)
            store.append(folder, result)
        return results

    with process_group(device):
        done = asked.of_each(judged)
    results = [result for each in done.values() for result in each]
    if results:
        models, sources = [asked[name].model for name in done], [asked[name].asked for name in done]
        place = {"root": root, "out": out, "counts": counts, "image_size": image_size}
        following = hint(models, sources, {"data": source, "task": task, **plan, **place})
        _conclude(results, models, out, following, done.left_out)
    return results


def hint(models: list[LoadedModel], sources: Sequence[Any], plan: Mapping[str, Any]) -> str:
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
    """The default of an option of `judge`; None where it is the recipe's or the model's."""
    return {**vars(Place()), **vars(Options()), **USUAL, "out": OUT}.get(name)


def _of(kind: type[T], plan: Mapping[str, Any]) -> T:
    return kind(**{field.name: plan[field.name] for field in fields(kind) if field.name in plan})


def _plan(recipe: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options, completed by the recipe or the usual ones. Raises UserError."""
    if recipe is not None and recipe not in RECIPES:
        raise UserError(f"there is no recipe {recipe!r}: {nearest(str(recipe), RECIPES)}")
    own = RECIPES[recipe] if recipe else USUAL
    plan = {**own, **{name: value for name, value in given.items() if value is not None}}
    if plan["task"] not in TASKS:
        raise UserError(f"there is no task {plan['task']!r}: {nearest(str(plan['task']), TASKS)}")
    if "data" not in plan:
        raise UserError(
            "name what to learn from: data=clipart_boxes, data=coco:FOLDER, data=voc07, voc0712 or coco2017; or "
            f"recipe={', recipe='.join(RECIPES)}"
        )
    return plan


def _announce(model: LoadedModel, train: Boxes, test: Boxes, task: str, plan: Mapping[str, Any]) -> None:
    training = planned(train, _of(Options, plan), _of(Place, plan), masks=task == "masks")
    schedule = training.schedule
    objects = f"{int(train.instances.counts.sum()):,} objects of {len(train.classes)} classes"
    ranks = f" on {world_size()} processes" if world_size() > 1 else ""
    trials = "1 trial" if plan["trials"] == 1 else f"{plan['trials']} trials"
    say.line(f"model     {model_line(model)}")
    say.line(f"data      {train.name}: {len(train):,} training images with {objects}, {len(test):,} test images")
    say.line(f"plan      {described(training, model, train, test)}")
    say.line(f"          {trials} of {schedule.steps:,} steps of {schedule.batch_size} images{ranks}")


def _conclude(
    results: list[Result], models: list[LoadedModel], out: str | Path, following: str, left_out: Mapping[str, str]
) -> None:
    say.line(f"\n{table(shown(results))}\n")
    print_differences(results)
    pictures = {}
    for model in models:
        own = [result for result in results if result.model == model.name]
        folder = results_folder(model, out) / own[0].protocol
        pictures |= {str(folder / name): None for result in own for name in result.details["pictures"]}
    say.line(f"pictures  {', '.join(pictures)}")
    say.line(
        f"results   {', '.join(dict.fromkeys(str(results_folder(model, out) / store.RESULTS) for model in models))}"
    )
    say.line(f"seconds   {sum(result.seconds for result in results):.0f}")
    print_left_out(left_out)
    if following:
        say.line(f"next      {following}")
