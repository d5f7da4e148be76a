"""Terminal output of action recognition: a line for each split as it goes, one table, and the next command."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.features.models import LoadedModel
from evaluation.judging.command_line import name_of, words
from evaluation.judging.run import results_folder
from evaluation.judging.summary import Opened, described, opened, print_differences, print_left_out, shown
from evaluation.protocols.action import action
from evaluation.protocols.action.opening import check_clips, source_of
from evaluation.protocols.action.options import Options, Place
from evaluation.protocols.action.recipes import RECIPES
from evaluation.protocols.action.recipes import chosen as recipe_of
from evaluation.results import store
from evaluation.results.result import Result
from evaluation.results.tables import table
from sslkit import say

OF_ONE_PROTOCOL = {"protocol", "recipe", "epochs", "batch_size", "lr", "weight_decay", "dropout", "features"}


def judge(
    checkpoint: Any = None,
    zoo: str | Path | None = None,
    *,
    out: str | Path = Place.out,
    image_size: int | None = None,
    trust: str | Sequence[str] | None = (),
    **options: Any,
) -> list[Result]:
    """Run the protocol for one model or several and print the table; `recipes/action_eval.py` calls it.

    checkpoint, trust: see `evaluation.load_model`, of checkpoint a list too; or zoo: a folder of entries. options: see
    `evaluation.protocols.action.action`; the films and the stride of the zoo entries hold for what stands beside them
    too. Each result is added to the zoo entry's results.jsonl, or below `out`.
    Returns the results of all. Raises UserError before anything is computed.
    """
    asked = opened(checkpoint, zoo, image_size=image_size, trust=trust, check=check_clips)
    options = {**options, **_of_entries([one.model for one in asked.values()], options)}

    def judged(_: str, one: Opened) -> Result:
        say.line(f"model     {described(one.model)}")
        folder = results_folder(one.model, out)
        result = action(one.model, out=folder, say=_line, **options)
        store.append(folder, result)
        return result

    done = asked.of_each(judged)
    models, results = [asked[name].model for name in done], list(done.values())
    say.line(f"\n{table(shown(results))}\n")
    print_differences(results)
    _print_unpaired(results)
    say.line(f"results   {', '.join(str(results_folder(model, out) / store.RESULTS) for model in models)}")
    print_left_out(done.left_out)
    names = [name_of(asked[name].asked, asked[name].model) for name in done]
    say.line(f"next      {hint(names, models[0], results[0], {**options, 'image_size': image_size, 'out': out})}")
    return results


def _of_entries(models: list[LoadedModel], options: Mapping[str, Any]) -> dict[str, Any]:
    """Films and stride that were not asked for, where the zoo entries among the models agree on them."""
    entries = [model for model in models if model.entry and model.frames]
    films = {source_of(model, options.get("data"), options.get("recipe")) for model in entries}
    strides = {model.entry.card["backbone"].get("stride") for model in entries}
    own = {"data": films, "stride": strides}
    return {name: known.pop() for name, known in own.items() if options.get(name) is None and len(known) == 1}


def hint(names: list[str], first: LoadedModel, result: Result, options: Mapping[str, Any]) -> str:
    """The next command to type, as a shell takes it: beside an untrained network, then the other protocol.

    names: of all models on a command line. first, result: the first of them, and what it got. options: those of
    `judge`; each that differs from its default is in the command.
    """
    defaults = {"data": None, **vars(Options()), **vars(Place())}
    asked = {name: value for name, value in options.items() if name in defaults and value != defaults[name]}
    if len(names) == 1 and first.entry:
        # the untrained network is no entry, so it does not know the entry's films and stride
        asked["stride"] = result.details["stride"]
        if source := source_of(first, **_picked(asked, "data", "recipe")):
            asked["data"] = source
        typed = words({"checkpoint": [names[0], f"random:{names[0]}"], **asked})
        return f"python recipes/action_eval.py {typed}   # beside the same network untrained"
    done = RECIPES[recipe_of(**_picked(asked, "protocol", "recipe"))].protocol
    dropped = OF_ONE_PROTOCOL if "data" in asked else {*OF_ONE_PROTOCOL, "folds"}
    kept = {name: value for name, value in asked.items() if name not in dropped}
    other = "linear" if done == "fine_tune" else "fine_tune"
    typed = words({"checkpoint": names if len(names) > 1 else names[0], **kept, "protocol": other})
    return f"python recipes/action_eval.py {typed}"


def _picked(asked: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: asked.get(name) for name in names}


def _print_unpaired(results: list[Result]) -> None:
    """Why networks that were judged by other clips have no verdict; see `evaluation.protocols.action.results`."""
    shapes = {result.model: "{length} x {stride} at {sizes[crop]} px".format(**result.details) for result in results}
    if len(set(shapes.values())) > 1:
        told = "; ".join(f"{model}: {shape}" for model, shape in shapes.items())
        say.line(f"no verdict between networks of other clips ({told}): give frames, stride and image_size for all\n")


def _line(text: str) -> None:
    say.line(f"          {text}")
