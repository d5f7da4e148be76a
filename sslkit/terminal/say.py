"""Messages for the user, and the commands in them: the library logs the lines, a command line prints them.

Each line is a record of the logger "sslkit.say". In a program of your own a run (`sslkit.pretrain`) prints its lines,
other functions only warnings. A logging configuration of your own gets all records instead, and
`logging.getLogger("sslkit.say").setLevel("WARNING")` leaves only warnings. The recipes print all lines.

Programs are started by `python recipes/train.py` in a clone, by `sslkit train` with the installed command. Messages are
written in the first form; `as_started` gives them the form that works where they are read.
"""

import logging
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sslkit.terminal.columns import folded, printable

PLAIN = re.compile(r"[\w./:+@%-]+")  # what Hydra's grammar takes as it stands
COMMAND = "SSLKIT_COMMAND"  # set by the command `sslkit`, for itself and the processes that it starts
SCRIPTS = Path(__file__).parents[2] / "recipes"
PROGRAM = re.compile(r"(?P<torchrun>torchrun(?: --\S+)* )?(?:python )?(?<![\w./-])recipes/(?P<name>\w+)\.py")
CALL, TYPED = "the same call with resume=True", "the same command with resume=true"  # in Python, on a command line
LOG = logging.getLogger("sslkit.say")
LOG.setLevel(logging.INFO)


def line(text: str) -> None:
    """Report progress in one line: a line break in it, which only a name can hold, is written as its escape."""
    LOG.info("%s", printable(as_started(text), keep=""))


def lines(text: str) -> None:
    """Report progress in several lines. Names in the text must hold no line break, see `columns.printable`."""
    LOG.info("%s", printable(as_started(text)))


def warning(text: str) -> None:
    """Report something left out or repeated, in one line."""
    LOG.warning("%s", printable(as_started(text), keep=""))


class _Printer(logging.Handler):
    """Prints to the current sys.stdout, in lines that fit the terminal; a warning stays one line."""

    def emit(self, record: logging.LogRecord) -> None:
        kept = sys.stdout.encoding or "utf-8"  # that of an old terminal lacks most letters
        said = record.getMessage().encode(kept, "backslashreplace").decode(kept)
        print(said if record.levelno >= logging.WARNING else folded(said), flush=True)


def print_lines() -> None:
    """Print every line from now on, in this process. A second call has no effect."""
    LOG.propagate = LOG.disabled = False  # a logging configuration may have disabled it
    if not any(isinstance(handler, _Printer) for handler in LOG.handlers):
        LOG.addHandler(_Printer())


@contextmanager
def printed_by_default() -> Iterator[None]:
    """Print every line meanwhile, unless there is a handler for it: that of a command line, or of one's own logging."""
    if LOG.hasHandlers():
        yield
        return
    printer = _Printer()
    LOG.addHandler(printer)
    try:
        yield
    finally:
        LOG.removeHandler(printer)


def by_command() -> bool:
    """Return whether programs are started as `sslkit NAME`: by that command, or where there are no scripts."""
    return COMMAND in os.environ or not (SCRIPTS / "train.py").is_file()


def as_started(text: str) -> str:
    """Return a text with `python recipes/few_shot.py` and `recipes/few_shot.py` written as they are started here."""
    return PROGRAM.sub(_command, text) if by_command() else text


def as_typed(text: str) -> str:
    """Return a text for a command line: as started, and without words of Python."""
    return as_started(text.replace(CALL, TYPED))


def _command(match: re.Match) -> str:
    launcher = f"{match['torchrun']}--no-python " if match["torchrun"] else ""
    return f"{launcher}sslkit {match['name'].replace('_', '-')}"


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
