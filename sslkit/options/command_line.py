"""Options as the words of a command line that a person can copy and run."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

PLAIN = re.compile(r"[\w./:+@%-]+")  # what Hydra's grammar takes as it stands


def leaves(options: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path of each option in nested mappings, `optimizer.lr`, and its value."""
    if not isinstance(options, Mapping):
        yield path, options
        return
    for name, value in options.items():
        yield from leaves(value, f"{path}.{name}".lstrip("."))


def words(options: Mapping[str, Any]) -> str:
    """The options as words of a command line, quoted for Hydra and for the shell."""
    return " ".join(shlex.quote(f"{name}={_written(value)}") for name, value in options.items())


def _written(value: Any) -> str:
    """A value as Hydra reads it."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_written, value))}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_written(one)}" for name, one in value.items()) + "}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    if PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${") + '"'
