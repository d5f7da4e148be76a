"""Terminal output of action recognition: why some networks have no verdict, and the next command."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evaluation.protocols.base import Judged, Task, Terminal, defaults_of_all
from evaluation.results import OUT
from evaluation.results.result import Result
from evaluation.tasks.action.opening import check_clips, source_of
from evaluation.tasks.action.options import SHARED, Options
from evaluation.tasks.action.recipes import RECIPES
from evaluation.tasks.action.recipes import chosen as recipe_of
from sslkit.data.columns import NO_COLUMNS
from sslkit.models.loading import name_of
from sslkit.models.model import Model
from sslkit.terminal.say import words

OF_ONE_PROTOCOL = {"protocol", "recipe", "epochs", "batch_size", "lr", "weight_decay", "dropout", "features"}


def agreed(models: Sequence[Model], task: Task) -> Task:
    """The task with films and stride that were not asked for, where the zoo entries among the models agree on them.

    They hold for the models beside the entries too, such as the same network untrained.
    """
    options = task.options
    entries = [model for model in models if model.entry and model.item.axes]
    films = {source_of(model, task.source, options.recipe) for model in entries}
    strides = {model.entry.card["backbone"].get("stride") for model in entries}
    source, stride = task.source, options.stride
    source = films.pop() if source is None and len(films) == 1 else source
    stride = strides.pop() if stride is None and len(strides) == 1 else stride
    return replace(task, source=source, options=replace(options, stride=stride))


def remarks(judged: Sequence[Judged]) -> list[str]:
    """Say why networks with other clips are not compared; see `evaluation.tasks.action.results`."""
    results = [result for entry in judged for result in entry.results]
    shapes = {result.model: "{length} x {stride} at {sizes[crop]} px".format(**result.details) for result in results}
    if len(set(shapes.values())) == 1:
        return []
    clips = "; ".join(f"{model}: {shape}" for model, shape in shapes.items())
    return [f"no verdict between networks of other clips ({clips}): give frames, stride and image_size for all\n"]


def following(judged: Sequence[Judged], task: Task, place: Mapping[str, Any]) -> str:
    """The next command after models were judged by a task; see `hint`."""
    shared = {name: value for name, value in place.items() if name in SHARED}
    names = [name_of(entry.asked, entry.model) for entry in judged]
    first = judged[0]
    return hint(names, first.model, first.results[0], {"data": task.source, **vars(task.options), **shared})


def hint(names: list[str], first: Model, result: Result, options: Mapping[str, Any]) -> str:
    """The next command to type, as a shell takes it: beside an untrained network, then the other protocol.

    names: of all models on a command line. first, result: the first of them, and what it got. options: data, `Options`
    and those of SHARED by name; each that differs from its default is in the command.
    """
    shared = {**defaults_of_all(), "out": OUT}
    defaults = {"data": None, **vars(Options()), **{name: shared[name] for name in SHARED}}
    asked = {name: value for name, value in options.items() if name in defaults and value != defaults[name]}
    asked |= asked.pop("columns", NO_COLUMNS).words
    if len(names) == 1 and first.entry:
        # the untrained network is no entry, so it does not know the entry's films and stride
        asked["stride"] = result.details["stride"]
        if source := source_of(first, **_pick(asked, "data", "recipe")):
            asked["data"] = source
        typed = words({"checkpoint": [names[0], f"random:{names[0]}"], **asked})
        return f"python recipes/action_eval.py {typed}   # beside the same network untrained"
    done = RECIPES[recipe_of(**_pick(asked, "protocol", "recipe"))].protocol
    dropped = OF_ONE_PROTOCOL if "data" in asked else {*OF_ONE_PROTOCOL, "folds"}
    options_kept = {name: value for name, value in asked.items() if name not in dropped}
    other = "linear" if done == "fine_tune" else "fine_tune"
    typed = words({"checkpoint": names if len(names) > 1 else names[0], **options_kept, "protocol": other})
    return f"python recipes/action_eval.py {typed}"


def _pick(asked: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: asked.get(name) for name in names}


TERMINAL = Terminal(
    usual=None,
    fits=lambda model, options: check_clips(model),
    agreed=agreed,
    plan=lambda opened, task, runtime: [],  # `run` says the films of each split
    remarks=remarks,
    following=following,
)
