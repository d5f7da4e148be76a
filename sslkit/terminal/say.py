"""Messages for the user: the library logs them, a command line prints them.

Each line is a record of the logger "sslkit.say". In a program of your own only warnings are shown, unless it calls
`logging.basicConfig(level=logging.INFO)`; `print_lines()` prints all lines, as the recipes do.
"""

import logging
import sys

from sslkit.terminal.columns import folded, printable
from sslkit.terminal.invocation import as_started

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
