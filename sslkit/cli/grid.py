"""Expand methods x plug-ins x seeds to command lines of recipes/train.py."""

import dataclasses
import importlib.util
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from sslkit.cli.words import check, of_one_value, one_line, quote_value

from sslkit import regularizers
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.options.members import parse, signature
from sslkit.options.settings import overlaid, texts_of
from sslkit.training.config import Config

LAUNCHERS = {  # Hydra's name and the package that provides it
    "slurm": ("submitit_slurm", "hydra-submitit-launcher"),
    "local": ("submitit_local", "hydra-submitit-launcher"),
    "ray": ("ray", "hydra-ray-launcher"),
}
TEXTS = {*texts_of(Config()), "data"}
ELSEWHERE = {
    "method": "use methods=[...] and plugins=[...]",
    "seed": "write seeds=[...]",
    "name": "each member is named automatically",
    "resume": "stopped members are resumed automatically",
}


@dataclass(frozen=True)
class Wanted:
    """A requested member. words: those of recipes/train.py that apply to it, without resume."""

    method: str
    seed: int
    words: tuple[str, ...]


def parse_words(words: Sequence[str], settings: Any, config: Any) -> tuple[Any, list[str]]:
    """Parse the words: `settings` (a dataclass) with their values, and the words for recipes/train.py.

    config: the settings of recipes/train.py. Raises UserError for an unknown setting or an invalid value.
    """
    names = {f.name for f in dataclasses.fields(settings)}
    for word in words:
        if word.startswith("-"):
            raise UserError(f"{word} is for recipes/train.py only: recipes/zoo.py always runs a sweep")
        if _key(word) in ELSEWHERE:
            raise UserError(f"{word}: {ELSEWHERE[_key(word)]}")
    settings = overlaid(settings, {_key(word): _value(word) for word in words if _key(word) in names})
    settings = dataclasses.replace(
        settings, **{name: _as_list(getattr(settings, name)) for name in ("methods", "plugins", "seeds")}
    )
    _check(settings)
    tree = {**dataclasses.asdict(config), **dataclasses.asdict(settings), "experiment": None, "hydra": None}
    tree["method"] = {}
    for name in _names(settings):
        for group, options in signature(name).items():
            tree["method"].setdefault(group, {}).update(options)
    check([word if _key(word) in names else quote_value(word, TEXTS) for word in words], tree)
    shared = [word for word in words if _key(word) not in names]
    if settings.cluster is None and any(word.startswith("hydra") for word in shared):
        raise UserError("hydra... is for a launcher: choose it with cluster=slurm, local or ray")
    return settings, shared


def list_members(settings: Any, shared: Sequence[str]) -> list[Wanted]:
    """Every member, seeds in the outer loop, so that an interrupted sweep has every method."""
    more = [f"hydra/launcher={LAUNCHERS[settings.cluster][0]}"] if settings.cluster else []
    return [
        Wanted(name, seed, (f"method={name}", f"seed={seed}", *_applicable(name, shared), *more))
        for seed, name in itertools.product(settings.seeds, _names(settings))
    ]


def multiruns(ones: Iterable[tuple[Wanted, bool]]) -> list[list[str]]:
    """The words of the fewest `recipes/train.py -m` commands that run exactly these members.

    ones: each member and True to resume it. Members with equal other words share a command line if their methods and
    seeds form a full grid.
    """
    seeds: dict[tuple[tuple[str, ...], str], list[int]] = defaultdict(list)
    for member, resume in ones:
        rest = tuple(of_one_value(word, TEXTS) for word in member.words[2:]) + (("resume=true",) if resume else ())
        seeds[rest, member.method].append(member.seed)
    methods: dict[tuple[tuple[str, ...], tuple[int, ...]], list[str]] = defaultdict(list)
    for (rest, method), its_seeds in seeds.items():
        methods[rest, tuple(its_seeds)].append(method)
    return [
        ["-m", f"method={','.join(names)}", f"seed={','.join(map(str, its_seeds))}", *rest]
        for (rest, its_seeds), names in methods.items()
    ]


def _names(settings: Any) -> list[str]:
    pairs = itertools.product(settings.methods, settings.plugins)
    return [method if plugin in ("none", None) else f"{method}+{plugin}" for method, plugin in pairs]


def _applicable(name: str, shared: Sequence[str]) -> list[str]:
    """The words that apply to a method: all except options of other methods."""
    options = signature(name)
    words = [word for word in shared if _applies(_key(word).split("."), options)]
    return [f"experiment={parse(name)[0]}" if word == "experiment=each" else word for word in words]


def _applies(path: list[str], known: dict[str, dict[str, Any]]) -> bool:
    return path[0] != "method" or (path[1] in known and (len(path) == 2 or path[2] in known[path[1]]))


def _check(settings: Any) -> None:
    choices = ["none", *regularizers.names()]
    for word in itertools.chain(*(str(plugin).split("+") for plugin in settings.plugins if plugin is not None)):
        if word not in choices and ":" not in word:
            raise UserError(f"there is no plug-in {word!r}: {members.nearest(word, choices)}")
    for name in ("methods", "plugins", "seeds"):
        if not getattr(settings, name):
            raise UserError(f"{name} must have at least one value, got []")
    _check_launcher(settings.cluster)


def _check_launcher(cluster: str | None) -> None:
    if cluster is None:
        return
    if cluster not in LAUNCHERS:
        raise UserError(f"cluster={cluster} is not known: {members.nearest(str(cluster), LAUNCHERS)}")
    package = LAUNCHERS[cluster][1]
    if importlib.util.find_spec(f"hydra_plugins.{package.replace('-', '_')}") is None:
        raise UserError(f"cluster={cluster} needs {package}: pip install {package}")


def _key(word: str) -> str:
    return word.lstrip("+~").partition("=")[0]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _value(word: str) -> Any:
    """Parse a word in Hydra's grammar: [a,b], a,b, range(0,5), true, null, ..."""
    try:
        override = OverridesParser.create().parse_override(word)
    except (HydraException, ValueError) as error:  # ValueError: a number of thousands of digits
        raise UserError(f"cannot read {word[:200]!r}: {one_line(error)}") from error
    return list(override.sweep_iterator()) if override.is_sweep_override() else override.value()
