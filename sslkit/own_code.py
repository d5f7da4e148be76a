"""Code of one's own, named as `package.module:name`: imported where its user names it, never because a file does.

A card that names such a function is followed only where the caller passes that name as `trust`.
"""

import importlib
import re
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sslkit.errors import UserError

if TYPE_CHECKING:
    from torch import nn

NAME = re.compile(r"\w+(?:\.\w+)*:\w+")


def trusted_names(trust: str | Sequence[str] | None) -> frozenset[str]:
    """The functions that cards may name: `package.module:function`, several of them, or None for none.

    Raises UserError for anything else.
    """
    names = [trust] if isinstance(trust, str) else trust
    names = [] if names is None else names
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and NAME.fullmatch(name) for name in names):
        raise UserError(f"trust={trust!r} must be package.module:function, or a list of such names")
    return frozenset(names)


def check_trusted(name: str, trust: str | Sequence[str] | None, where: str) -> None:
    """Raises UserError, with the way to trust it, unless `name` (package.module:function) is among `trust`.

    where: the card that names it, for the message.
    """
    if name not in trusted_names(trust):
        raise UserError(
            f"{where}: its network is made by {name}, code that is not sslkit's; if you trust it, pass trust={name!r} "
            f"(trust={name} on a command line)"
        )


def find(name: str, form: str, where: str) -> Any:
    """The object `package.module:name`. form: how such names are written, where: who names it, for messages.

    Raises UserError for a module that cannot be imported, whatever its import raises, and for one without the object.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # the module runs code that is not ours
        raise UserError(f"{where}cannot import {name!r} (written {form}): {_reason(error)}") from error


def network(name: str, where: str) -> "nn.Module":
    """The network that the function `package.module:function` returns, called without arguments.

    where: who names it, for messages. Raises UserError for a function that cannot be imported, that raises anything
    (SystemExit too), or that returns no nn.Module.
    """
    from torch import nn

    function = find(name, "package.module:function", f"{where}: ")
    try:
        net = function()
    except (Exception, SystemExit) as error:  # the function is not ours
        raise UserError(f"{where}: {name} failed: {_reason(error)}") from error
    if not isinstance(net, nn.Module):
        raise UserError(f"{where}: {name} returned {type(net).__name__}, not an nn.Module")
    return net


def _reason(error: BaseException) -> str:
    """Kind and first line of an error; and the place, where the error does not come from the import itself."""
    said = (str(error).strip() or "no message").splitlines()[0]
    if isinstance(error, (ImportError, AttributeError)):
        return said
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {said} ({last.filename}, line {last.lineno})"
