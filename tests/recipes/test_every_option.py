"""Every option of every task, as it is declared: its default is allowed, and what it excludes is one clear error."""

import importlib
import inspect
import itertools
import math
import pkgutil
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, get_origin

import pytest
from commands import COMMANDS, PROTOCOLS, WRITES

from evaluation.judging.command_line import Output, Subjects, settings_of

from evaluation import protocols, transferability
from evaluation.judging.run import make_tasks
from evaluation.protocols.base import defaults_of_all
from evaluation.ranking.scoring import parse
from sslkit import objectives, regularizers
from sslkit.data.views.recipe import View
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.options.calls import is_declared, options_of
from sslkit.options.settings import Declared, alternatives, describe_values, iter_settings
from sslkit.training.config import Config

ALONE = {"linear_eval": "linear", "few_shot": "few_shot"}  # commands of one protocol
RECIPES = (*COMMANDS, "train", "zoo", *ALONE)
STARTS = 'if __name__ == "__main__":'  # only programs have it
UNDECLARED = {"installed", "list"}  # they take words, not settings
FAMILIES = {"objective": objectives, "regulariser": regularizers}
CALLS = (  # functions of declared options that no command calls
    "evaluation.judging.evaluators:evaluators",
    *PROTOCOLS.values(),
    "sslkit.data.sources.named:open_images",
    "evaluation.datasets:open_split",
    "evaluation.features.extraction:extract",
    "sslkit.models.loading:load",
    "evaluation.learners.episodes:draw_episodes",
    "evaluation.tasks.detection.datasets.sources:open_boxes",
)


def tasks() -> Iterator[tuple[str, tuple[Declared, ...]]]:
    for name in protocols.names():
        yield f"protocol {name}", tuple(members.declarations(protocols.find(name).Options).values())
    for family, module in FAMILIES.items():
        for name in module.names():
            yield f"{family} {name}", tuple(members.declarations(module.find(name)).values())
    for name in transferability.names():
        metric = transferability.find(name)
        for function in (metric.score, *([metric.wrapped] if hasattr(metric, "wrapped") else [])):
            yield f"metric {name} {function.__name__}", tuple(members.declarations(function).values())


def settings_of_command(recipe: str) -> Any:
    if recipe == "train":
        return Config()
    if recipe in ALONE:
        return settings_of(Subjects, protocols.find(ALONE[recipe]).Options, Output)
    module = importlib.import_module(recipe)
    return module.SETTINGS if hasattr(module, "SETTINGS") else module.Settings()


def declared_by(function: Callable[..., Any]) -> dict[str, Declared]:
    """The options of a function by name, as its dataclasses declare them; without those that are its own arguments."""
    own = inspect.signature(inspect.unwrap(function), eval_str=True).parameters
    options: dict[str, Declared] = {}
    for kind in (one.annotation for one in own.values() if is_declared(one.annotation)):
        for option in options_of(kind):
            options.setdefault(option.path, option)
    parameters = inspect.signature(function).parameters
    return {name: option for name, option in options.items() if name in parameters and name not in own}


@pytest.fixture
def options(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Declared, ...]:
    """The options of a command line."""
    monkeypatch.syspath_prepend(str(request.config.rootpath / "recipes"))
    return tuple(iter_settings(settings_of_command(request.param)))


def wrong(option: Declared) -> Iterator[Any]:
    """Values that the declaration excludes: of another type, beyond a bound, no word of the list."""
    kinds, limits = alternatives(option.kind), option.limits
    if Any in kinds or not all(isinstance(kind, type) or get_origin(kind) for kind in kinds):
        return
    yield object()
    if {int, float} & set(kinds):
        yield from (math.nan, math.inf, 10**400)
        yield from (bound - 1 for bound in (limits.least,) if bound is not None)
        yield from (bound + 1 for bound in (limits.most,) if bound is not None)
        yield from (bound for bound in (limits.above, limits.below) if bound is not None)
    if limits.choices or str not in kinds:
        yield "no such word"
    yield from (misspelt(word) for word in limits.choices if misspelt(word) not in limits.choices)
    if types.NoneType not in kinds:
        yield None


def misspelt(word: str) -> str:
    return word + word[-1]


def check(option: Declared) -> None:
    if get_origin(option.kind) is not Callable:
        option.check(option.default)
    for value in wrong(option):
        with pytest.raises(UserError) as raised:
            option.check(value)
        check_line(str(raised.value), option, value)


def check_line(line: str, option: Declared, value: Any) -> None:
    """The line of an error names the option, what it allows, and the nearest word."""
    assert line.startswith(f"{option.path} must be {describe_values(option.kind, option.limits)}, got "), (option, line)
    assert "\n" not in line, (option, value)
    if isinstance(value, str) and value in map(misspelt, option.limits.choices):
        assert re.search("did you mean '[^']+'\\?$", line), line


@pytest.mark.parametrize(("task", "own"), list(tasks()), ids=lambda given: given if isinstance(given, str) else "")
def test_what_an_option_excludes_is_one_line(task: str, own: tuple[Declared, ...]) -> None:
    for option in own:
        check(option)


def test_every_command_and_every_declared_function_is_checked(pytestconfig: pytest.Config) -> None:
    root = pytestconfig.rootpath
    programs = {path.stem for path in (root / "recipes").glob("*.py") if STARTS in path.read_text(encoding="utf-8")}
    assert programs == {*RECIPES, *UNDECLARED}
    declared = set()
    for path in (path for part in ("sslkit", "evaluation") for path in (root / part).rglob("*.py")):
        found = re.findall(r"^@(?:public|by_keywords)\b.*\ndef (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        declared |= {f"{module}:{name}" for name in found} - {"sslkit.options.calls:knn"}  # of an example
    assert declared == {*CALLS, *itertools.chain(*COMMANDS.values())}


@pytest.mark.parametrize("path", sorted({*CALLS, *itertools.chain(*COMMANDS.values())}))
def test_what_a_function_is_wrongly_given_is_one_line_before_anything_is_opened(path: str) -> None:
    function = pkgutil.resolve_name(path)
    parameters = inspect.signature(function).parameters.values()
    required = {one.name: None for one in parameters if one.default is one.empty}
    options = declared_by(function)
    assert options
    for name, option in options.items():
        for value in wrong(option):
            with pytest.raises(UserError) as raised:
                function(**{**required, name: value})
            check_line(str(raised.value), option, value)


@pytest.mark.parametrize("name", protocols.names())
def test_what_evaluate_is_wrongly_given_for_a_protocol_is_one_line(name: str) -> None:
    for path, option in members.declarations(protocols.find(name).Options).items():
        for value in wrong(option):
            with pytest.raises(UserError) as raised:
                make_tasks("digits", [name], {name: {path: value}})
            allowed = f" {path} must be {describe_values(option.kind, option.limits)}, got "
            assert allowed in str(raised.value) and "\n" not in str(raised.value), raised.value


@pytest.mark.parametrize("name", transferability.names())
def test_what_a_metric_is_wrongly_given_is_one_line(name: str) -> None:
    for path, option in members.declarations(transferability.find(name).score).items():
        for value in wrong(option):
            if value is None and option.kind is str:  # a text that reads like Python
                continue
            with pytest.raises(UserError) as raised:
                parse(name, {path: value})
            check_line(str(raised.value), replace(option, path=f"{name} option {path}"), value)


@pytest.mark.parametrize("name", View.__dataclass_fields__)
def test_what_a_view_is_wrongly_given_is_one_line(name: str) -> None:
    for value in (object(), math.nan, -1, 10**6, "no such word", [1, 2, 3], []):
        with pytest.raises(UserError, match=f"^view option {name}=.*: give ") as raised:
            View(**{name: value})
        assert "\n" not in str(raised.value)


def test_what_local_crops_are_wrongly_given_names_them() -> None:
    for options in ({"local_size": 0}, {"local_scale": 2}):
        with pytest.raises(UserError, match=r"^local crops: view option (size|scale)=[02]: give "):
            objectives.find("dino").views.replace(**options)
    with pytest.raises(UserError, match=r"^view option flip=2: give a number from 0 to 1"):
        objectives.find("dino").views.replace(flip=2)


@pytest.mark.parametrize("options", RECIPES, indirect=True)
def test_what_a_setting_excludes_is_one_line(options: tuple[Declared, ...]) -> None:
    assert options and all(option.help for option in options)
    for option in options:
        check(option)


def test_a_shared_option_is_the_same_in_every_command(monkeypatch: pytest.MonkeyPatch, pytestconfig) -> None:
    monkeypatch.syspath_prepend(str(pytestconfig.rootpath / "recipes"))
    own = {"device", "out", "seed", "workers", "precision", "batch_size", "range"}  # one of a task's own may be another
    for recipe in ("evaluate", "detect", "action_eval", "rank", "choose", "finetune", "solve", "ground_truth", "embed"):
        settings = {option.path: option.default for option in iter_settings(importlib.import_module(recipe).SETTINGS)}
        shared = {name: value for name, value in defaults_of_all().items() if name in settings and name not in own}
        assert {name: settings[name] for name in shared} == shared


@pytest.mark.parametrize("recipe", COMMANDS)
def test_an_option_has_one_default_in_python_and_on_a_command_line(
    recipe: str, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.syspath_prepend(str(pytestconfig.rootpath / "recipes"))
    settings = {option.path: option.default for option in iter_settings(importlib.import_module(recipe).SETTINGS)}
    for path in COMMANDS[recipe]:
        parameters = inspect.signature(pkgutil.resolve_name(path)).parameters
        shared = {
            name: one.default for name, one in parameters.items() if name in settings and one.default is not one.empty
        }
        assert len(shared) > 1 or recipe == "cut_films", path
        assert {name for name, default in shared.items() if default != settings[name]} <= WRITES, path
