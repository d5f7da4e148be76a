"""Protocols: one file or folder each, found by its name, with the names that `base.Protocol` describes.

Those of this folder are of labelled images; rooms of `evaluation.tasks` have more.

The fields of a protocol's `Options` are its options; command lines and help are made from them.
"""

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from evaluation import tasks
from evaluation.datasets import Reading
from evaluation.features.models import Loading
from evaluation.protocols.base import Protocol, Subject, Terminal
from evaluation.results.result import Result
from evaluation.tuning.processes import process_group
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime


def families() -> tuple[str, ...]:
    """Return the packages whose members are protocols."""
    return (__name__, *tasks.families())


def names() -> tuple[str, ...]:
    """Every protocol."""
    return tuple(sorted(name for family in families() for name in members.names(family)))


def module_of(name: str) -> ModuleType:
    """Import the module of a protocol. Raises UserError for an unknown one, with the nearest."""
    for family in families():
        if name in members.names(family):
            return importlib.import_module(f"{family}.{name}")
    raise UserError(f"there is no protocol {name!r}: {members.nearest(name, names())}")


def find(name: str) -> Protocol:
    """A protocol by its name. Raises UserError for an unknown one, with the nearest."""
    module = module_of(name)
    terminal = vars(module).get("terminal", Terminal())
    return Protocol(module.Options, module.open, module.run, module.beside, terminal)


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

    call.__name__ = call.__qualname__ = name
    call.__doc__ = protocol.run.__doc__
    return public()(call)
