"""The Python that loads a model, as every command prints it."""

from collections.abc import Sequence
from typing import Any

from sslkit.terminal.say import columns, words


def keywords(**given: Any) -> str:
    """`, name=value` of each that is given, as Python is written; one of no value is left out."""
    return "".join(f", {name}={value!r}" for name, value in given.items() if value)


def lines_to_load(label: str, word: str, more: str = "") -> list[str]:
    """`model = sslkit.load('WORD')` behind a label. more: further arguments as they are written, see `keywords`."""
    return lines_of_call(label, "model = sslkit.load", [f"{word!r}{more}"])


def line_to_predict(folder: object) -> str:
    """The command by which a kept model predicts."""
    return f"predict   python recipes/predict.py {words({'checkpoint': str(folder), 'data': 'path/to/images'})}"


def lines_of_call(label: str, call: str, arguments: Sequence[str]) -> list[str]:
    """A call behind a label in one line or, where a terminal is narrower, with a line for each argument."""
    line = f"{label}{call}({', '.join(arguments)})"
    if len(line) <= columns():
        return [line]
    blank = " " * len(label)
    return [f"{label}{call}(", *(f"{blank}    {argument}," for argument in arguments), f"{blank})"]
