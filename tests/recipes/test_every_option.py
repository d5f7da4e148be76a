"""Every option of every task, as it is declared: its default is allowed, and what it excludes is one clear error."""

import importlib
import inspect
import math
import pkgutil
import types
from collections.abc import Callable, Iterator
from typing import Any, get_origin

import pytest
from commands import COMMANDS, WRITES

from evaluation import protocols
from evaluation.protocols.base import defaults_of_all
from sslkit import objectives, regularizers
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.options.settings import Declared, alternatives, iter_settings
from sslkit.training.config import Config

RECIPES = ("evaluate", "detect", "action_eval", "rank", "choose", "ground_truth", "embed", "export", "report", "shards")
FAMILIES = {"protocol": protocols, "objective": objectives, "regulariser": regularizers}


def tasks() -> Iterator[tuple[str, tuple[Declared, ...]]]:
    yield "train", tuple(iter_settings(Config()))
    for family, module in FAMILIES.items():
        for name in module.names():
            member = module.find(name)
            own = members.declarations(member.Options if family == "protocol" else member)
            yield f"{family} {name}", tuple(own.values())


@pytest.fixture
def options(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Declared, ...]:
    """The options of a command line."""
    monkeypatch.syspath_prepend(str(request.config.rootpath / "recipes"))
    module = importlib.import_module(request.param)
    return tuple(iter_settings(module.SETTINGS if hasattr(module, "SETTINGS") else module.Settings()))


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
    if types.NoneType not in kinds:
        yield None


def check(option: Declared) -> None:
    if get_origin(option.kind) is not Callable:
        option.check(option.default)
    for value in wrong(option):
        with pytest.raises(UserError, match="must be") as raised:
            option.check(value)
        assert str(raised.value).startswith(option.path) and "\n" not in str(raised.value), (option, value)


@pytest.mark.parametrize(("task", "own"), list(tasks()), ids=lambda given: given if isinstance(given, str) else "")
def test_what_an_option_excludes_is_one_line(task: str, own: tuple[Declared, ...]) -> None:
    for option in own:
        check(option)


@pytest.mark.parametrize("options", RECIPES, indirect=True)
def test_what_a_setting_excludes_is_one_line(options: tuple[Declared, ...]) -> None:
    assert options and all(option.help for option in options)
    for option in options:
        check(option)


def test_a_shared_option_is_the_same_in_every_command(monkeypatch: pytest.MonkeyPatch, pytestconfig) -> None:
    monkeypatch.syspath_prepend(str(pytestconfig.rootpath / "recipes"))
    own = {"device", "out", "seed", "workers", "precision", "batch_size", "range"}  # one of a task's own may be another
    for recipe in ("evaluate", "detect", "action_eval", "rank", "choose", "ground_truth", "embed"):
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
