"""Lines for people: a library logs them, a command line prints them.

Each line is a record of the logger "sslkit.say". `logging.basicConfig(level=logging.INFO)` shows them in a program of
your own, which without it shows the warnings alone; `print_lines()` prints them as the recipes do.
"""

import logging

LOG = logging.getLogger("sslkit.say")
LOG.setLevel(logging.INFO)


def line(text: str) -> None:
    """Tell how the work goes."""
    LOG.info("%s", text)


def warning(text: str) -> None:
    """Tell what was left out or is done again."""
    LOG.warning("%s", text)


class _Printer(logging.Handler):
    """Prints to what is sys.stdout at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), flush=True)


def print_lines() -> None:
    """Print every line from now on, in this process. A second call changes nothing."""
    LOG.propagate = LOG.disabled = False  # a configuration of logging may have switched it off
    if not any(isinstance(handler, _Printer) for handler in LOG.handlers):
        LOG.addHandler(_Printer())
