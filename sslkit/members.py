"""A family (objectives, regularizers, ...) is a package; a member is a file or folder in it, found by its name.

The member's class is the one that its file defines on the family's base class; its keyword arguments are
its options. Nothing is registered by hand.
"""

import difflib
import importlib
import inspect
import numbers
import pkgutil
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from sslkit.errors import UserError


def nearest(name: str, known: Iterable[str]) -> str:
    """The tail of an error message: the nearest known name, then all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}known: {', '.join(known)}"


@cache
def names(family: str) -> tuple[str, ...]:
    """Every member of a family, by listing its folder: `names("sslkit.objectives")`."""
    package = importlib.import_module(family)
    found = (info.name for info in pkgutil.iter_modules(package.__path__))
    return tuple(sorted(name for name in found if name != "base" and not name.startswith("_")))


def find(family: str, name: str) -> type:
    """The class of a member, or of `package.module:Class` from outside.

    Raises UserError for an unknown name, with the nearest known one.
    """
    base = importlib.import_module(f"{family}.base")
    contract = getattr(base, base.CONTRACT)
    if ":" in name:
        return _from_outside(name, contract)
    if name not in names(family):
        raise UserError(f"there is no {contract.__name__.lower()} {name!r}: {nearest(name, names(family))}")
    module = importlib.import_module(f"{family}.{name}")
    own = [
        member
        for member in vars(module).values()
        if inspect.isclass(member)
        and issubclass(member, contract)
        and f"{member.__module__}.".startswith(f"{module.__name__}.")
    ]
    if len(own) != 1:
        raise TypeError(f"{module.__name__} must define exactly one {contract.__name__}, it has {len(own)}")
    return own[0]


def _from_outside(name: str, contract: type) -> type:
    module_name, _, class_name = name.partition(":")
    try:
        member = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"cannot import {name!r} (written package.module:Class): {error}") from error
    if not (inspect.isclass(member) and issubclass(member, contract)):
        raise UserError(f"{name!r} is not a subclass of {contract.__module__}.{contract.__name__}")
    return member


def options(member: type) -> dict[str, Any]:
    """The options of a member and their defaults: the keyword-only arguments of its constructor."""
    parameters = inspect.signature(member).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def check_options(member: type, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`given` as a dict, once every key is an option of `member`. Raises UserError with the nearest one."""
    known = options(member)
    for key, value in given.items():
        if key not in known:
            raise UserError(f"{where} has no option {key!r}: {nearest(key, known)}")
        kind = inspect.signature(member).parameters[key].annotation
        if get_origin(kind) is Annotated:
            _check_limits(f"{where} option {key}", kind, value)
            continue
        if not _is_a(value, kind):
            shown = kind.__name__ if isinstance(kind, type) else kind
            raise UserError(f"{where} option {key}={value!r} must be {shown}, like its default {known[key]!r}")
    return dict(given)


def _check_limits(name: str, kind: Any, value: Any) -> None:
    """Check a value against `Annotated[int, Limits(least=1)]`. Raises UserError."""
    from sslkit.settings import Declared  # which takes `nearest` from here

    plain, limits = get_args(kind)[:2]
    Declared(name, plain, limits, None, "").check(value)


def _is_a(value: Any, kind: Any) -> bool:
    """Whether a value fits an annotation such as `int | None`; whole numbers are floats too. Others are let through."""
    if isinstance(kind, types.UnionType):
        return any(_is_a(value, one) for one in kind.__args__)
    if get_origin(kind) is Sequence:
        return isinstance(value, Sequence) and not isinstance(value, str)
    if kind in (int, float):
        number = numbers.Integral if kind is int else numbers.Real  # numpy's too
        return isinstance(value, number) and not isinstance(value, bool)
    return not isinstance(kind, type) or isinstance(value, kind)


def summary(member: type) -> str:
    """One line that says what a member is: the first of its module's docstring."""
    doc = inspect.getdoc(inspect.getmodule(member)) or inspect.getdoc(member) or ""
    return doc.strip().splitlines()[0] if doc.strip() else ""


def callable_module(name: str, function: Callable[..., Any]) -> None:
    """Let the module `name` be called as `function`: `sslkit.method(...)` stands beside `sslkit.method.Method`."""
    module = sys.modules[name]
    module.__class__ = type("CallableModule", (types.ModuleType,), {"__call__": staticmethod(function)})
