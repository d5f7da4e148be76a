"""A function of declared options, called with each option as a keyword of its own.

@by_keywords
def knn(train: Array, test: Array, options: Options) -> float: ...

knn(train, test, k=5)

Signature, docstring and checks are made from the fields of `Options`, where default, range and text of each stand once.
"""

import dataclasses
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar, get_origin

from sslkit.errors import UserError, nearest
from sslkit.options.settings import Declared, iter_settings, overlaid

R = TypeVar("R")
WRAPPED = textwrap.TextWrapper(116, subsequent_indent="    ", break_on_hyphens=False)
OWN = "options"  # the parameter whose options are the function's own, and not shared by others


class UnknownOption(UserError, TypeError):
    """A keyword that a function does not have: bad input, and what Python raises for it."""


def by_keywords(function: Callable[..., R], *shared: str) -> Callable[..., R]:
    """Return the function with the options of its dataclass parameters as keywords.

    An option that several of these parameters have is declared by the first and goes to each. The function itself is
    `__wrapped__`. shared: the options of other parameters than `options` that the function obeys; none named: all.
    The returned function raises UserError for a value that an option does not allow.
    """
    original = inspect.signature(function, eval_str=True)
    parts = {name: kind.annotation for name, kind in original.parameters.items() if is_declared(kind.annotation)}
    owners = _owners(parts, original.parameters.keys() - parts.keys(), shared)
    signature = original.replace(parameters=_parameters(original, owners))

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> R:
        if unknown := keywords.keys() - signature.parameters:
            name = min(unknown)
            raise UnknownOption(f"{function.__name__} has no option {name!r}: {nearest(name, signature.parameters)}")
        bound = signature.bind(*args, **keywords).arguments
        plain = {name: value for name, value in bound.items() if name not in owners}
        options = {}
        for owner, kind in parts.items():
            names = bound.keys() & owners.keys() & {field.name for field in dataclasses.fields(kind)}
            options[owner] = overlaid(kind(), {name: bound[name] for name in names})
        return function(**plain, **options)

    call.__signature__ = signature
    call.__doc__ = _document(function, [option for _, options in owners.values() for option in options])
    return call


def is_declared(kind: Any) -> bool:
    """Return whether an annotation is a dataclass of declared options."""
    is_dataclass = inspect.isclass(kind) and dataclasses.is_dataclass(kind)
    return is_dataclass and any("help" in field.metadata for field in dataclasses.fields(kind))


def options_of(part: type) -> tuple[Declared, ...]:
    """The declared options of a dataclass; a field without a text is none."""
    return tuple(option for option in iter_settings(part()) if option.help)


def merge(own: Sequence[type], context: Sequence[type] = (), shared: Collection[str] = ()) -> Any:
    """Return a dataclass instance with the options of several, as the settings of a command line.

    Of options of one name the first is taken. shared: those of `context` that the command obeys; none named: all.
    A function is nothing that is typed, and left out.
    """
    fields: dict[str, tuple[str, Any, Any]] = {}
    for kind in (*own, *context):
        typed = {
            option.path.partition(".")[0] for option in options_of(kind) if get_origin(option.kind) is not Callable
        }
        for field in dataclasses.fields(kind):
            if field.name in typed and (kind in own or not shared or field.name in shared):
                fields.setdefault(field.name, (field.name, field.type, field))
    return dataclasses.make_dataclass("Settings", fields.values())()


def _as_keywords(part: type) -> dict[str, list[Declared]]:
    """Return the declared options of a dataclass by keyword: those of one nested in it have one, for a mapping."""
    keywords: dict[str, list[Declared]] = {}
    for option in options_of(part):
        keywords.setdefault(option.path.partition(".")[0], []).append(option)
    return keywords


def _owners(
    parts: Mapping[str, type], taken: Collection[str], shared: Collection[str]
) -> dict[str, tuple[str, list[Declared]]]:
    """{keyword: (the parameter that it is a field of, the declaration, or those of its mapping)}."""
    owners: dict[str, tuple[str, list[Declared]]] = {}
    for owner, kind in parts.items():
        for name, options in _as_keywords(kind).items():
            if name not in taken and (owner == OWN or not shared or name in shared):
                owners.setdefault(name, (owner, options))
    return owners


def _parameters(known: inspect.Signature, owners: Mapping[str, tuple[str, list[Declared]]]) -> list[inspect.Parameter]:
    parameters = []
    for name, parameter in known.parameters.items():
        replaced = [
            parameter.replace(name=keyword, default=options[0].default, annotation=options[0].kind)
            if options[0].path == keyword
            else parameter.replace(name=keyword, default=getattr(parameter.annotation, keyword), annotation=Mapping)
            for keyword, (owner, options) in owners.items()
            if owner == name
        ]
        parameters += replaced if is_declared(parameter.annotation) else [parameter]
    return parameters


def _document(function: Callable[..., Any], options: Collection[Declared]) -> str:
    """The docstring, with a line for each option; `columns.label` is `columns={"label": ...}`."""
    lines = [WRAPPED.fill(f"{option.path}: {_text(option)}") for option in options]
    return "\n".join([inspect.cleandoc(function.__doc__ or ""), "", "Keywords:", *lines])


def _text(option: Declared) -> str:
    """The text of an option in Python's words, and the bounds of its numbers."""
    bounds = str(option.limits)
    sentences = [re.sub(r"\bnull\b", "None", option.help), f"{bounds[:1].upper()}{bounds[1:]}"]
    return ". ".join(filter(None, sentences)) + "."
