"""A family (objectives, regularizers, ...) is a package; a member is a file or folder in it, found by its name.

The member's class is the one that its file defines on the family's base class; its keyword arguments are
its options. Nothing is registered by hand. The name of a method, `objective+regulariser+...`, names members of two
families.
"""

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sslkit.errors import UserError, format_value, nearest
from sslkit.lazy import folders
from sslkit.lazy import members as names
from sslkit.options import own_code
from sslkit.options.settings import Declared, iter_settings, plain

OBJECTIVES, REGULARIZERS = "sslkit.objectives", "sslkit.regularizers"


def first_line(family: str, name: str) -> str:
    """The first line of a member's file, a one-line description; nothing is imported for it."""
    for info in pkgutil.iter_modules(folders(family)):
        if info.name == name:
            path = Path(info.module_finder.find_spec(name).origin)
            return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).splitlines()[0]
    raise ValueError(f"{family} has no member {name}")


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
    candidates = [
        member
        for member in vars(module).values()
        if inspect.isclass(member)
        and issubclass(member, contract)
        and f"{member.__module__}.".startswith(f"{module.__name__}.")
    ]
    if len(candidates) != 1:
        raise TypeError(f"{module.__name__} must define exactly one {contract.__name__}, it has {len(candidates)}")
    return candidates[0]


def _from_outside(name: str, contract: type) -> type:
    member = own_code.find(name, "package.module:Class", "")
    if not (inspect.isclass(member) and issubclass(member, contract)):
        raise UserError(f"{name!r} is not a subclass of {contract.__module__}.{contract.__name__}")
    return member


def options(member: type) -> dict[str, Any]:
    """The options of a member and their defaults: the keyword-only arguments of its constructor."""
    parameters = inspect.signature(member).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def declarations(member: type) -> dict[str, Declared]:
    """The declared options of a member by name: its fields, or the keyword-only arguments of its constructor."""
    if dataclasses.is_dataclass(member):
        return {option.path: option for option in iter_settings(member())}
    parameters, helps = inspect.signature(member).parameters, texts(member)
    return {
        name: Declared(name, *plain(parameters[name].annotation), default, helps.get(name, ""))
        for name, default in options(member).items()
    }


def texts(documented: Any) -> dict[str, str]:
    """The meaning of each option of a class or function: the first sentence of its `name: text` in the docstring.

    `a, b: text` stands for both. What a class does not say, its bases may.
    """
    sentences: dict[str, str] = {}
    for source in reversed(inspect.getmro(documented) if inspect.isclass(documented) else (documented,)):
        sentences |= _sentences(vars(source).get("__doc__") if inspect.isclass(source) else source.__doc__)
    return sentences


_NAMES = re.compile(r"(?:^|(?<=\. ))([a-z_]\w*(?:, [a-z_]\w*)*): ")


def _sentences(doc: str | None) -> dict[str, str]:
    paragraphs: list[str] = []
    for line in inspect.cleandoc(doc or "").splitlines():
        if line.startswith(" ") and paragraphs:
            paragraphs[-1] += f" {line.strip()}"
        else:
            paragraphs.append(line)
    sentences = {}
    for paragraph in paragraphs:
        _, *parts = _NAMES.split(paragraph)
        for listed, text in zip(parts[::2], parts[1::2], strict=True):
            sentences |= dict.fromkeys(listed.split(", "), re.split(r"(?<! al)\. (?=[A-Z0-9])|\.? *$", text)[0])
    return sentences


def check_options(member: type, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return `method` as a dict, once every key is an option of `member` and every value fits its annotation.

    An annotation may carry its range, `Annotated[float, Limits(above=0)]`: see `sslkit.options.ranges`.
    Raises UserError for an unknown key, with the nearest one, and for a value of another type or out of range.
    """
    if not isinstance(given, Mapping):
        raise UserError(f"{where} must be a mapping of options, got {format_value(given)}")
    by_name, checked = declarations(member), {}
    for name, value in given.items():
        if name not in by_name:
            raise UserError(f"{where} has no option {name!r}: {nearest(str(name), by_name)}")
        checked[name] = dataclasses.replace(by_name[name], path=f"{where} option {name}").check(value)
    return checked


def summary(member: type) -> str:
    """The first line of a member's module docstring, a one-line description."""
    doc = inspect.getdoc(inspect.getmodule(member)) or inspect.getdoc(member) or ""
    return doc.strip().splitlines()[0] if doc.strip() else ""


def parse(name: str) -> tuple[str, list[str]]:
    """`objective+regulariser+...` -> the objective's name and the regularisers' names."""
    if not isinstance(name, str):
        raise UserError(f"method must be text, such as byol+dsa, got {format_value(name)}")
    first, *rest = [piece.strip() for piece in name.split("+")]
    if not all([first, *rest]):
        raise UserError(f"method {name!r} has an empty part; write objective or objective+regulariser, e.g. byol+dsa")
    if len({key(piece) for piece in rest}) < len(rest):
        raise UserError(f"method {name!r} names a regulariser twice")
    return first, rest


def key(part: str) -> str:
    """The key of a part's options: `dsa`, or `Class` for `package.module:Class`."""
    return part.rpartition(":")[2]


def signature(name: str) -> dict[str, dict[str, Any]]:
    """Every option of a method and its default, by part: {"objective": ..., "views": ..., "dsa": ...}."""
    parts = classes(name)
    views = {"views": parts["objective"].views.options()}
    options_of = {piece: options(member) for piece, member in parts.items()}
    return {"objective": options_of.pop("objective")} | views | options_of


def classes(name: str) -> dict[str, type]:
    """The class of each part of a method, the objective's first: {"objective": BYOL, "dsa": DSA}.

    Raises UserError for a regulariser in the place of the objective, and for an objective after a +.
    """
    first, rest = parse(name)
    regularizers = names(REGULARIZERS)
    if first in regularizers and first not in names(OBJECTIVES):
        raise UserError(f"{first} is a regulariser: add it to an objective, method=simclr+{first}")
    for piece in rest:
        if piece in names(OBJECTIVES) and piece not in regularizers:
            raise UserError(f"{piece} is an objective: it comes first, method={piece}, and only regularisers after a +")
    plugins = {key(piece): find(REGULARIZERS, piece) for piece in rest}
    return {"objective": find(OBJECTIVES, first), **plugins}


def check_parts(
    name: str, objective: Mapping[str, Any], plugins: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, type], dict[str, dict[str, Any]]]:
    """The class and the checked options of each part of a method, the objective's first."""
    parts = signature(name)
    for given in plugins:
        if given not in parts:
            raise UserError(f"{name!r} has no part {given!r}: {nearest(given, parts)}")
    kinds, given = classes(name), {"objective": objective, **plugins}
    return kinds, {piece: check_options(kinds[piece], given.get(piece) or {}, piece) for piece in kinds}


def fill_options(method: str | Mapping[str, Any]) -> dict[str, Any]:
    """`method` of a run's settings with every option: {"name": ..., "objective": ..., "views": ..., "dsa": ...}.

    Raises UserError for options that are no mapping.
    """
    method = {"name": method} if isinstance(method, str) else dict(method)
    for piece, defaults in signature(method["name"]).items():
        chosen = method.get(piece) or {}
        if not isinstance(chosen, Mapping):
            raise UserError(f"{piece} must be a mapping of options, got {format_value(chosen)}")
        method[piece] = defaults | chosen
    return method
