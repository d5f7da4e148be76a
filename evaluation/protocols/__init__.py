"""Protocols: one file or folder each, found by its name, with the names that `base.Protocol` describes.

The fields of a protocol's `Options` are its options; command lines and help are made from them.
"""

import importlib

from evaluation.protocols.base import Protocol, Terminal
from sslkit.errors import UserError
from sslkit.options import members


def names() -> tuple[str, ...]:
    """Every protocol."""
    return members.names(__name__)


def find(name: str) -> Protocol:
    """A protocol by its name. Raises UserError for an unknown one, with the nearest."""
    if name not in names():
        raise UserError(f"there is no protocol {name!r}: {members.nearest(name, names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    terminal = vars(module).get("terminal", Terminal())
    return Protocol(module.Options, module.open, module.run, module.beside, terminal)
