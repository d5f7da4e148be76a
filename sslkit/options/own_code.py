"""User code named as `package.module:name`: imported where the user names it, never because a file does.

A card that names such a function is loaded only if the caller passes that name as `trust`.
"""

import importlib
import re
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sslkit.errors import UserError

if TYPE_CHECKING:
    from torch import nn

NAME = re.compile(r"\w+(?:\.\w+)*:\w+")


def check_trusted(name: str, trust: str | Sequence[str] | None, where: str) -> None:
    """Raises UserError, with the way to trust it, unless `name` (package.module:function) is in `trust`.

    trust: the functions that cards may name, or None for none; UserError for anything else.
    where: the card that names it, for the message.
    """
    names = [trust] if isinstance(trust, str) else () if trust is None else trust
    if not isinstance(names, Sequence) or not all(isinstance(each, str) and NAME.fullmatch(each) for each in names):
        raise UserError(f"trust={trust!r} must be package.module:function, or a list of such names")
    if name not in names:
        raise UserError(
            f"{where}: its network is made by {name}, code that is not sslkit's; if you trust it, pass trust={name!r} "
            f"(trust={name} on a command line)"
        )


def find(name: str, form: str, where: str) -> Any:
    """The object `package.module:name`. form, where: the name's format and its source, for messages.

    Raises UserError if the module cannot be imported, for whatever reason, or lacks the object.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # the module runs user code
        raise UserError(f"{where}cannot import {name!r} (written {form}): {_reason(error)}") from error


def module(name: str, form: str) -> ModuleType:
    """The module of the object `package.module:name`. Raises UserError as `find` does."""
    find(name, form, "")
    return sys.modules[name.partition(":")[0]]


def network(name: str, where: str) -> "nn.Module":
    """The network that the function `package.module:function` returns, called without arguments.

    where: the source of the name, for messages. Raises UserError if the function cannot be imported, raises anything
    (SystemExit too), or returns no nn.Module.
    """
    from torch import nn

    function = find(name, "package.module:function", f"{where}: ")
    try:
        net = function()
    except (Exception, SystemExit) as error:  # the function is user code
        raise UserError(f"{where}: {name} failed: {_reason(error)}") from error
    if not isinstance(net, nn.Module):
        raise UserError(f"{where}: {name} returned {type(net).__name__}, not an nn.Module")
    return net


def _reason(error: BaseException) -> str:
    """The class and first line of an error, and its place unless the import itself failed."""
    message = (str(error).strip() or "no message").splitlines()[0]
    if isinstance(error, (ImportError, AttributeError)):
        return message
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {message} ({last.filename}, line {last.lineno})"
