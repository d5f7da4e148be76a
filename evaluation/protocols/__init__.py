"""Protocols: one file or folder each, found by its name, with the names that `base.Protocol` describes.

Those of this folder are of labelled images; rooms of `evaluation.tasks` have more.

The fields of a protocol's `Options` are its options; command lines and help are made from them.

`package.module:Options` names one from outside by its dataclass of options; the other names are looked for beside it.
Its options and results stand under the name of the module.
"""

import dataclasses
import importlib
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from evaluation import tasks
from evaluation.datasets import Reading
from evaluation.protocols.base import Protocol, Subject, Terminal
from evaluation.results.result import Result
from evaluation.tuning.processes import process_group
from sslkit.errors import UserError
from sslkit.models.loading import Loading
from sslkit.options import members, own_code
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime

FORM = "package.module:Options"
CONTRACT = "see evaluation.protocols.base.Protocol"
_given: dict[str, str] = {}  # the names from outside that this process was given, by their keys


def families() -> tuple[str, ...]:
    """Return the packages whose members are protocols."""
    return (__name__, *tasks.families())


def names() -> tuple[str, ...]:
    """Every protocol."""
    return tuple(sorted(name for family in families() for name in members.names(family)))


def key(name: str) -> str:
    """Return the name of a protocol's options and results: that of its module."""
    return name.partition(":")[0].rpartition(".")[2]


def module_of(name: str) -> ModuleType:
    """Import the module of a protocol. Raises UserError for an unknown one, with the nearest."""
    if ":" in name:
        return _own_module(name)
    for family in families():
        if name in members.names(family):
            return importlib.import_module(f"{family}.{name}")
    raise UserError(f"there is no protocol {name!r}: {members.nearest(name, names())}")


def _own_module(name: str) -> ModuleType:
    """The module of `package.module:Options`. Raises UserError unless it is a protocol, of a name of its own."""
    module, options = own_code.module(name, FORM), name.rpartition(":")[2]
    lacking = [member for member in ("open", "run", "beside") if not callable(getattr(module, member, None))]
    if not dataclasses.is_dataclass(getattr(module, options)):
        lacking = [f"dataclass {options}"]
    if lacking:
        raise UserError(f"{name!r} is no protocol: {module.__name__} has no {', '.join(lacking)} ({CONTRACT})")
    if key(name) in names() or _given.get(key(name), name) != name:
        raise UserError(f"{name!r}: there is another protocol {key(name)!r}: give the module another name")
    _given[key(name)] = name
    return module


def find(name: str) -> Protocol:
    """A protocol by its name. Raises UserError for an unknown one, with the nearest."""
    module = module_of(name)
    options = getattr(module, name.rpartition(":")[2] if ":" in name else "Options")
    return Protocol(options, module.open, module.run, module.beside, vars(module).get("terminal", Terminal()))


def find_known(name: str) -> Protocol | None:
    """The protocol of a result, by `key`; None for one of another version, or of code that this process was not given.

    A file of results never makes that code run.
    """
    return find(_given.get(name, name)) if name in (*names(), *_given) else None


def options_by_key(words: Sequence[str], *, every: bool = False) -> dict[str, type]:
    """Return the options of the protocols that words of a command line name: `protocols=[NAME,...]`, `NAME.option=...`.

    every: also of all others of the families.
    """
    listed = " ".join(value for word in words for key, _, value in [word.partition("=")] if key == "protocols")
    prefixes = {word.lstrip("+~").partition(".")[0] for word in words}
    matching = [name for name in names() if every or name in prefixes or name in re.findall(r"\w+", listed)]
    return {key(name): find(name).Options for name in (*matching, *dict.fromkeys(own_code.NAME.findall(listed)))}


def function(name: str) -> Callable[..., list[Result]]:
    """Return a protocol as a function of a model and data; its keywords are its options and those that all share.

    evaluation.protocols.function("knn_seg")("runs/zoo/NAME", "clipart_boxes", k=10)
    """
    protocol = find(name)

    def call(
        model: Any,
        data: Any = protocol.terminal.usual,
        *,
        options: protocol.Options,
        loading: Loading,
        reading: Reading,
        runtime: Runtime,
    ) -> list[Result]:
        with process_group(runtime):
            subject = Subject(loading.load(model), data, reading)
            return protocol.run(protocol.open(subject, options), options, runtime)

    call.__name__ = call.__qualname__ = key(name)
    call.__doc__ = protocol.run.__doc__
    return public()(call)
