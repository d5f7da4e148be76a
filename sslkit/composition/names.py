"""The name of a method, `objective+regulariser+...`: its parts, their classes and their options."""

from collections.abc import Mapping
from typing import Any

from sslkit.errors import UserError, shown
from sslkit.options import members

OBJECTIVES, REGULARIZERS = "sslkit.objectives", "sslkit.regularizers"


def parse(name: str) -> tuple[str, list[str]]:
    """`objective+regulariser+...` -> the objective's name and the regularisers' names."""
    if not isinstance(name, str):
        raise UserError(f"method must be text, such as byol+dsa, got {shown(name)}")
    first, *rest = [part.strip() for part in name.split("+")]
    if not all([first, *rest]):
        raise UserError(f"method {name!r} has an empty part; write objective or objective+regulariser, e.g. byol+dsa")
    if len({key(part) for part in rest}) < len(rest):
        raise UserError(f"method {name!r} names a regulariser twice")
    return first, rest


def key(part: str) -> str:
    """The key of a part's options: `dsa`, or `Class` for `package.module:Class`."""
    return part.rpartition(":")[2]


def signature(name: str) -> dict[str, dict[str, Any]]:
    """Every option of a method and its default, by part: {"objective": ..., "views": ..., "dsa": ...}."""
    parts = classes(name)
    views = {"views": parts["objective"].views.options()}
    known = {part: members.options(member) for part, member in parts.items()}
    return {"objective": known.pop("objective")} | views | known


def classes(name: str) -> dict[str, type]:
    """The class of each part of a method, the objective's first: {"objective": BYOL, "dsa": DSA}.

    Raises UserError for a regulariser in the place of the objective, and for an objective after a +.
    """
    first, rest = parse(name)
    regularizers = members.names(REGULARIZERS)
    if first in regularizers:
        raise UserError(f"{first} is a regulariser: add it to an objective, method=simclr+{first}")
    for part in rest:
        if part in members.names(OBJECTIVES) and part not in regularizers:
            raise UserError(f"{part} is an objective: it comes first, method={part}, and only regularisers after a +")
    found = {key(part): members.find(REGULARIZERS, part) for part in rest}
    return {"objective": members.find(OBJECTIVES, first), **found}


def filled(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """`method` of a run's settings with every option: {"name": ..., "objective": ..., "views": ..., "dsa": ...}.

    Raises UserError for options that are no mapping.
    """
    given = {"name": given} if isinstance(given, str) else dict(given)
    for part, known in signature(given["name"]).items():
        own = given.get(part) or {}
        if not isinstance(own, Mapping):
            raise UserError(f"{part} must be a mapping of options, got {shown(own)}")
        given[part] = known | own
    return given
