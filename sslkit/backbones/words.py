"""The words that name weights which are no zoo entry: `timm:NAME(num_heads=12):FILE:PART`, `published:NAME:FILE`.

Any may hold the size of its images: `efficientnet_lite0(image_size=64)`, `timm:NAME(num_heads=12, image_size=64):FILE`.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sslkit.backbones import timm_allowed, wheels
from sslkit.errors import UserError

AUTO = "auto"  # in the place of the name of a network: the default one
KINDS = ("timm", "published", "random")
PIXELS = "pixels"  # the images themselves, without a network
START = "start:"  # before the name of weights that a network began from, as a control
_SIZE = re.compile(r"(?P<before>[(,]\s*)image_size\s*=\s*(?P<size>[^,()]*)(?P<after>[,)])")
_CALL = re.compile(r"(?P<name>[^:(]*)(?P<call>\(.*?\))?(?::(?P<file>.*))?", re.DOTALL)


@dataclass(frozen=True)
class Word:
    """A model word in its parts.

    kind: "timm", "published", "random" or "pixels"; "" for a path. name: of the network, a seed's owner, or the path.
    arguments: of `timm.create_model`, in brackets after the name. file: of weights, FILE or FILE:PART, or a seed; "".
    """

    kind: str
    name: str
    file: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def network(self) -> str:
        """The name with its arguments, as it is written."""
        written = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.name}({written})" if written else self.name


def parse(text: str, where: str) -> Word:
    """The parts of a word; one of `wheels.WHEELS` is timm's network with the file of the wheel.

    where: beginning of messages. Raises UserError for arguments that are none, or none that timm may be given here,
    and for a wheel that is not installed.
    """
    if text in wheels.WHEELS:
        return Word("timm", f"tf_{text}", wheels.file(text))
    if text == PIXELS:
        return Word(PIXELS, text)
    if not (kind := kind_of(text)):
        return Word("", text)
    rest = text.removeprefix(f"{kind}:")
    if kind == "random":
        name, _, seed = rest.partition(":")
        return Word(kind, name, seed)
    parts = _CALL.fullmatch(rest)
    if parts is None:
        raise UserError(f"{where}: write {kind}:NAME(argument=value):FILE")
    name, file = parts["name"], parts["file"] or ""
    return Word(kind, name, file, _arguments(name, parts["call"], where) if parts["call"] and kind == "timm" else {})


def kind_of(text: str) -> str:
    """Return which of `KINDS` a word is of, timm for a wheel's; "" for a path."""
    kind, colon, _ = text.partition(":")
    return "timm" if text in wheels.WHEELS else kind if colon and kind in KINDS else ""


def is_untrained(text: str) -> bool:
    """Return whether a word, or the name of a model, is of random weights."""
    return kind_of(text) == "random"


def is_null(text: str) -> bool:
    """Return whether a word, or the name of a model, is of random weights, raw pixels, or the start of another model:
    a control.
    """
    return text == PIXELS or is_untrained(text) or text.startswith(START)


def split_size(text: str) -> tuple[str, int | None]:
    """A word without the size of images that is written in it, and that size in pixels, None without one.

    A path of this name is no word. Raises UserError for a size that is no whole number.
    """
    match = _SIZE.search(text)
    if match is None or Path(text).expanduser().exists():
        return text, None
    if not match["size"].strip().isdecimal():
        raise UserError(f"model {text}: image_size is in pixels, a whole number: NAME(image_size=64)")
    first, last = match["before"].startswith("("), match["after"] == ")"
    between = "" if first and last else "(" if first else ")" if last else ", "
    return text[: match.start()] + between + text[match.end() :].lstrip(), int(match["size"])


def _arguments(name: str, call: str, where: str) -> dict[str, Any]:
    """`(num_heads=12)` -> {"num_heads": 12}."""
    import timm

    try:
        parsed = ast.parse(f"f{call}", mode="eval").body
        arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in parsed.keywords}
        if parsed.args or None in arguments:
            raise ValueError("arguments without names")
    except (SyntaxError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise UserError(f"{where}: {call} are no arguments: write timm:NAME(num_heads=12):FILE") from error
    if timm.is_model(name) and (fault := timm_allowed.fault(name, arguments)):
        raise UserError(f"{where}: {fault}")
    return arguments
