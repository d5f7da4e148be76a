"""The options that the head of a manifest names: they count where nothing is given, in the place of a sample's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sslkit.data.decode.scale import UNKNOWN, Scale
from sslkit.data.image_options import VALUES, DataOptions, FileOptions, ImageOptions, parse_fill, parse_range
from sslkit.errors import UserError, nearest
from sslkit.options.settings import as_word, overlaid
from sslkit.terminal import say

OF_FILES = tuple(FileOptions.__dataclass_fields__)
NAMES = (*VALUES, *OF_FILES, "mirror")
_USUAL = ImageOptions()


@dataclass(frozen=True, kw_only=True)
class _Declared(DataOptions, FileOptions):
    """The declarations of `NAMES`, among others."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "range", parse_range(self.range))
        object.__setattr__(self, "fill", parse_fill(self.fill))


@dataclass(frozen=True)
class Settled:
    """options: to open the files by. scale: the parts that the head says and nobody gave. mirror: of the head."""

    options: ImageOptions
    scale: Scale = UNKNOWN
    mirror: bool | None = None


def word(name: str, value: Any) -> str:
    """An option as the head has it, so that `parse` gives the same value: `range=[0,4095]`."""
    is_range = isinstance(value, tuple)
    return f"{name}={as_word(list(map(_exact, value)) if is_range else _exact(value))}"


def _exact(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def parse(name: str, text: str) -> Any:
    """The value of an option in a head. Raises UserError for a name that no head has, and for what is no value."""
    if name not in NAMES:
        raise UserError(f"the head of a manifest has no option {name!r}: {nearest(name, NAMES)}")
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return getattr(overlaid(_Declared(), {name: value}), name)


def settle(options: ImageOptions, file: Path, decisions: Mapping[str, Any]) -> Settled:
    """Take the decisions of a head where nothing is given; a line names both where something else is.

    What becomes of stored values stays open to the model that reads them, see `Images.at`: it is no option.
    """
    usual = {name: value for name, value in decisions.items() if value != getattr(_Declared, name)}
    asked_for = {name for name in (*VALUES, *OF_FILES) if getattr(options, name) != getattr(_USUAL, name)}
    for name in (name for name in usual if name in asked_for and usual[name] != getattr(options, name)):
        asked = word(name, getattr(options, name))
        say.warn(f"{file}: its head says {word(name, usual[name])}, and {asked} is given, which counts", stacklevel=1)
    missing = {name: value for name, value in usual.items() if name not in asked_for}
    of_values = {name: missing[name] for name in VALUES if name in missing}
    options = replace(options, **{name: missing[name] for name in OF_FILES if name in missing})
    return Settled(options, ImageOptions(**of_values).scale if of_values else UNKNOWN, usual.get("mirror"))
