"""The commands on the page, as a shell takes them; "" where the files do not record what one would need."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from evaluation import datasets
from evaluation.ranking.inputs import candidates
from evaluation.ranking.inputs.regions import parts
from evaluation.ranking.ranking import Ranking
from evaluation.ranking.truth import ground_truth
from evaluation.report.cells import dig
from evaluation.results.result import Result
from sslkit.backbones.words import is_untrained, kind_of
from sslkit.data import columns
from sslkit.data.image_options import VALUES
from sslkit.data.sources.builtin import NAMES
from sslkit.data.sources.torchvision_sets import PREFIX
from sslkit.errors import UserError
from sslkit.models import loading as models
from sslkit.options.members import signature
from sslkit.options.settings import leaves
from sslkit.terminal.say import words
from sslkit.training.config import Config
from sslkit.zoo.entry import CARD

READ_BY = (*VALUES, *columns.OPTIONS)
RANKED_BY = ("split", "max_images", "image_size", "bootstrap", "seed", "source", "clusters", "reference", *READ_BY)
DECLARED = {**vars(models.AS_USUAL), **vars(datasets.AS_USUAL), **vars(candidates.Options())}
USUAL = {
    name: DECLARED[name] for name in RANKED_BY if name not in ("max_images", "bootstrap", "seed", *columns.OPTIONS)
}
PLACES = ("method", "out", "name", "resume")  # written first, or about the location and not the run
TRUTH = ground_truth.Options.out
ALONE = {  # protocols with a recipe of their own
    "action": ("action_eval", {}),
    "detection": ("detect", {"task": "boxes"}),
    "segmentation": ("detect", {"task": "masks"}),
}


def command(recipe: str, options: Mapping[str, Any]) -> str:
    """Return `python recipes/RECIPE.py name=value ...`, quoted for Hydra and for the shell."""
    return f"python recipes/{recipe}.py {words(options)}".rstrip()


def training(card: Mapping[str, Any]) -> str:
    """Return the command that trains an entry, with the non-default options.

    "" if the card lacks them, and for a method that this version does not know.
    """
    if tuned := dig(card, "config", "finetune"):
        begun = {"checkpoint": dig(card, "init", "source"), "data": dig(card, "data", "source")}
        return command("finetune", {**begun, **tuned}) if all(begun.values()) else ""
    config, method = dig(card, "config"), dig(card, "method")
    defaults = _options(str(method)) if method else {}
    if not isinstance(config, Mapping) or not defaults:
        return ""
    options = {"method": method, "data": dig(config, "data", "source")}
    usual = {path: value for path, value in leaves(Config().to_dict()) if path != "data.source"}
    rest = {name: value for name, value in config.items() if name not in PLACES}
    options |= {path: value for path, value in leaves(rest) if path in usual and value != usual[path]}
    chosen = {name: value for name, value in (dig(card, "options") or {}).items() if name != "name"}
    options |= {
        f"method.{path}": value
        for path, value in leaves(chosen)
        if path in defaults and value not in (None, defaults[path])
    }
    return command("train", options)


def first_training(zoo: Path) -> str:
    """Return the command that trains a first entry of a zoo."""
    return command("train", {"method": "byol+dsa", "out": zoo})


def evaluating(result: Result, folder: Path | None) -> str:
    """Return the command of a result; "" if its data or its model is not known.

    folder: of the zoo entry, None outside a zoo.
    """
    data = source_of(result)
    if not data or (folder is None and not is_loadable(result.model)):
        return ""
    recipe, choice = ALONE.get(result.protocol, ("evaluate", {"protocols": [result.protocol]}))
    seed = {"seed": result.seeds[0]} if result.seeds and result.seeds[0] else {}
    choice = {**choice, **result.details.get("columns", {})}
    return command(recipe, {"checkpoint": folder or result.model, "data": data, **choice, **seed})


def evaluating_all(folders: Sequence[Path], data: str = "") -> str:
    """Return the command that evaluates these entries. data: of networks of others than images, such as videos."""
    chosen = {"checkpoint": folders[0] if len(folders) == 1 else list(folders)}
    return command("action_eval", {**chosen, "data": data}) if data else command("evaluate", chosen)


def source_of(result: Result) -> str:
    """Return the data of a result as a command names it; "" if that was not recorded."""
    if recorded := result.details.get("source"):
        return str(recorded)
    data = result.data
    can_be_opened = datasets.find_published(data) or data in NAMES or data.startswith(PREFIX) or Path(data).exists()
    return data if data and can_be_opened else ""


def is_loadable(model: str) -> bool:
    """Return whether this name of a model outside the zoo opens it wherever the command is run."""
    return kind_of(model) in ("timm", "published") or (Path(model) / CARD).is_file()


def ranking(recorded: Ranking, zoo: Path, entries: Collection[str]) -> str:
    """Return the command of a ranking, with its recorded settings; "" if its data is not recorded.

    zoo: the folder. entries: the names of its entries. Models whose place is not known are left out, see `lost`.
    """
    if not recorded.data:
        return ""
    settings = recorded.made
    made = {name: settings[name] for name in RANKED_BY if name in settings and settings[name] != USUAL.get(name, ...)}
    of_what = {"zoo": _models(recorded, zoo, entries), "data": recorded.data}
    return command("rank", {**of_what, "metrics": list(recorded.metrics), **made})


def ranking_with_truth(recorded: Ranking, zoo: Path, entries: Collection[str]) -> tuple[str, str]:
    """Return the commands that measure the ground truth of a ranking and then rank with it; "" as for `ranking`.

    Also "" for detection and segmentation sets: ground_truth.py trains classifiers only.
    """
    again = ranking(recorded, zoo, entries)
    if not again or parts(recorded.data):
        return "", ""
    read = ("image_size", *READ_BY)
    made = {name: recorded.made[name] for name in read if recorded.made.get(name) not in (None, USUAL.get(name))}
    measured = {"zoo": _models(recorded, zoo, entries), "data": recorded.data, **made, "out": TRUTH}
    return command("ground_truth", measured), f"{again} {words({'truth': f'{TRUTH}/truth.json'})}"


def lost(recorded: Ranking, entries: Collection[str]) -> list[str]:
    """Return the models of a ranking that its command leaves out: entries of other folders, which it does not name."""
    return [name for name in recorded.models if name not in entries and not _outside(name, Path(), entries)]


def _models(recorded: Ranking, zoo: Path, entries: Collection[str]) -> Path | list[Any]:
    """Return the models as a command names them: the zoo, or its ranked entries, and models from elsewhere."""
    words_of = recorded.made.get("words", {})  # models with a size of images of their own, which is in the word
    members = [zoo / name for name in recorded.models if name in entries and name not in words_of]
    members = [zoo] if len(members) == len(entries) else members
    left = [name for name in recorded.models if name not in entries or name in words_of]
    others = [word for name in left if (word := words_of.get(name) or _outside(name, zoo, entries))]
    models = [*members, *others]
    return models if len(models) > 1 else models[0]


def _outside(name: str, zoo: Path, entries: Collection[str]) -> str:
    """Return the word that opens a model from outside the zoo; "" if it cannot be known."""
    if is_untrained(name):
        kind, entry, *seed = name.split(":")
        return ":".join([kind, str(zoo / entry), *seed]) if entry in entries else name
    return name if is_loadable(name) else ""


@cache
def _options(method: str) -> dict[str, Any]:
    """Return the defaults of a method's options by their path; empty for an unknown method."""
    try:
        return dict(leaves(signature(method)))
    except UserError:
        return {}
