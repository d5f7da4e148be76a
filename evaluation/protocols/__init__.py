"""Protocols: one file each, found by its name; `evaluate(subject, *, options) -> list[Result]` is what runs it.

The keyword arguments of `evaluate` are the protocol's options; command lines and help are made from that signature.
"""

import importlib
from collections.abc import Callable
from typing import Any

from evaluation.results.result import Result
from sslkit import members
from sslkit.errors import UserError


def names() -> tuple[str, ...]:
    """Every protocol."""
    return members.names(__name__)


def find(name: str) -> Callable[..., list[Result]]:
    """The `evaluate` of a protocol. Raises UserError for an unknown name, with the nearest."""
    if name not in names():
        raise UserError(f"there is no protocol {name!r}: {members.nearest(name, names())}")
    return importlib.import_module(f"{__name__}.{name}").evaluate


def opener(name: str) -> Callable[[Any], Any]:
    """What opens a protocol's data before anything is computed: its own `open_data(subject)`.

    Without one its data are labelled images, and the subject's splits are looked up.
    """
    return getattr(importlib.import_module(f"{__name__}.{name}"), "open_data", lambda subject: subject.splits)


def has_own_data(name: str) -> bool:
    """Whether a protocol opens its data itself."""
    return hasattr(importlib.import_module(f"{__name__}.{name}"), "open_data")


def checker(name: str) -> Callable[..., None]:
    """What looks for mistakes in data and options that labels alone show: the protocol's own `check`, or nothing.

    It takes the subject and the protocol's options and raises UserError before anything is extracted.
    """
    return getattr(importlib.import_module(f"{__name__}.{name}"), "check", lambda subject, **options: None)
