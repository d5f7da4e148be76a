"""Messages for the user: their lines, numbers with nouns, and the commands in them.

The library logs the lines, a command line prints them, folded at blanks, and commands so that they can still be copied.
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
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PLAIN = re.compile(r"[\w./:+@%-]+")  # what Hydra's grammar takes as it stands
COMMAND = "SSLKIT_COMMAND"  # set by the command `sslkit`, for itself and the processes that it starts
SCRIPTS = Path(__file__).parents[2] / "recipes"
PROGRAM = re.compile(r"(?P<torchrun>torchrun(?: --\S+)* )?(?:python )?(?<![\w./-])recipes/(?P<name>\w+)\.py")
CALL, TYPED = "the same call with resume=True", "the same command with resume=true"  # in Python, on a command line
LOG = logging.getLogger("sslkit.say")
LOG.setLevel(logging.INFO)

USUAL = 80  # columns where stdout is no terminal, and the least that is used on one
LABEL = re.compile(r"\s*(?:\S+(?: \S+)? {2,}|\S+(?: \S+){0,2}: +)?")  # "backbone  ", "  judge it:   "
MOST_HANGING = 16  # columns below a label that stay empty
STARTS = re.compile(r"(?:python|sslkit|torchrun|tensorboard) ")
WORD = re.compile(r"""\s*(?:'[^']*'|"[^"]*"|\S)+""")  # with the blanks before it; quoted blanks do not end it
CHUNK = re.compile(r"\s*\S+")
REMARK = "   # "  # begins what is said of a command


def line(text: str) -> None:
    """Report progress in one line: a line break in it, which only a name can hold, is written as its escape."""
    LOG.info("%s", printable(as_started(text), keep=""))


def lines(text: str) -> None:
    """Report progress in several lines. Names in the text must hold no line break, see `printable`."""
    LOG.info("%s", printable(as_started(text)))


def warning(text: str) -> None:
    """Report something left out or repeated, in one line."""
    LOG.warning("%s", printable(as_started(text), keep=""))


def warn(text: str, category: type[Warning] = UserWarning, stacklevel: int = 1) -> None:
    """Warn the caller's program in one line, as `warnings.warn` does; stacklevel: 1 is the line that calls this."""
    warnings.warn(printable(text, keep=""), category, stacklevel=stacklevel + 1)


class _Printer(logging.Handler):
    """Prints to the current sys.stdout, in lines that fit the terminal; a warning stays one line."""

    def emit(self, record: logging.LogRecord) -> None:
        encoding = sys.stdout.encoding or "utf-8"  # that of an old terminal lacks most letters
        message = record.getMessage().encode(encoding, "backslashreplace").decode(encoding)
        print(message if record.levelno >= logging.WARNING else fold(message), flush=True)


def print_lines() -> None:
    """Print every line from now on, in this process. A second call has no effect."""
    LOG.propagate = LOG.disabled = False  # a logging configuration may have disabled it
    if not any(isinstance(handler, _Printer) for handler in LOG.handlers):
        LOG.addHandler(_Printer())


@contextmanager
def print_by_default() -> Iterator[None]:
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


@contextmanager
def only_warnings() -> Iterator[None]:
    """Leave out lines of progress meanwhile: of a run that is a part of another command."""
    level = LOG.level
    LOG.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        LOG.setLevel(level)


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
        return "{" + ",".join(f"{name}:{_written(entry)}" for name, entry in value.items()) + "}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    if PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${") + '"'


def columns() -> int:
    """Columns of the terminal on stdout, at least 80; 80 where stdout is no terminal."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return max(USUAL, shutil.get_terminal_size().columns) if is_terminal else USUAL


def printable(text: str, keep: str = "\n") -> str:
    """Return the text with every character that is not printable, and not in `keep`, as its escape, such as `\\x1b`.

    Names of files, classes and models come from outside: a terminal would obey an escape code in one, and a line break
    in one would begin a line that looks like ours.
    """
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text)


def fold(text: str, width: int | None = None) -> str:
    """Return the text with lines of at most `width` (None: `columns()`), continued below the text of their label.

    A command is continued after a backslash, as a shell reads it. A word that is longer, such as a path, has a line of
    its own.
    """
    width = width or columns()
    return "\n".join(piece for line in text.split("\n") for piece in _lines(line, width, *_label(line)))


def reflow(text: str, width: int | None = None) -> str:
    """Return a docstring with its paragraphs filled anew; a line that begins with a command stays one, see `fold`.

    What is said of a command is in brackets at the end of its line.
    """
    width, lines = width or columns(), []
    for line in text.strip().splitlines():
        if STARTS.match(line):
            command, remark = re.fullmatch(r"(.*?)(?: {2,}\((.*)\))?", line).groups()
            lines.append(f"{command}{REMARK}{remark}" if remark and len(line) > width else line)
        elif lines and line and lines[-1] and not STARTS.match(lines[-1]):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return "\n".join(piece for line in lines for piece in _lines(line, width, "", 0))


def entry(name: str, text: str, column: int, width: int | None = None) -> str:
    """Return a line of a list: the indented name, and its text from `column` on, below it if the name is longer."""
    first = f"  {name}"
    beside = first.ljust(column) if len(first) + 2 <= column else ""
    below = hung(CHUNK.findall(text), beside or " " * column, column, width or columns())
    return "\n".join(([] if beside else [first]) + [line for line in below if line])


def _label(line: str) -> tuple[str, int]:
    """The label of a line with the blanks around it, and the column in which its other lines begin."""
    label = LABEL.match(line).group()
    if label.strip() and len(label) <= MOST_HANGING:
        return label, len(label)
    blank = re.match(r"\s*", line).group()
    return blank, len(blank) + 2


def _lines(line: str, width: int, label: str, hanging: int) -> list[str]:
    if len(line) <= width:
        return [line]
    rest = line[len(label) :]
    if not STARTS.match(rest):
        return hung(CHUNK.findall(rest), label, hanging, width)
    hanging = len(label) if label.strip() else len(label) + 4
    command, _, remark = rest.partition(REMARK)
    lines = hung(WORD.findall(command), label, hanging, width, more=" \\")
    return lines + (hung(CHUNK.findall(f"# {remark}"), " " * hanging, hanging, width) if remark else [])


def hung(words: list[str], label: str, hanging: int, width: int, more: str = "") -> list[str]:
    """Lines of words (each with the blanks before it), the first after the label, the others indented by `hanging`.

    more: what ends every line but the last.
    """
    lines, room = [label], width - len(more)
    for word in words:
        if lines[-1].strip() and len(lines[-1]) + len(word) > room:
            alone = word.strip()
            lines[-1] += more if lines[-1] != label else ""
            lines.append(" " * max(0, min(hanging, width - len(alone))) + alone)
        else:
            lines[-1] += word
    return [line.rstrip() for line in lines]


def counted(number: int, noun: str) -> str:
    """Return `1 epoch`, `6 epochs`, `8,000 images`, `2 classes`, `3 boxes`."""
    ending = "" if number == 1 else "es" if noun.endswith(("s", "x")) else "s"
    return f"{number:,} {noun}{ending}"


def and_more(names: Sequence[object], most: int = 3) -> str:
    """Return `a, b, c`, or for more than `most` names `a, b, c and 2 more`."""
    return ", ".join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def and_so_on(names: Sequence[str], most: int) -> str:
    """Return `a, b, c`, or for more than `most` names `a, b, c, ...`."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def lasting(seconds: float) -> str:
    """A time in words: `40 s`, `12 min`, `3.5 h`, `2.5 days`."""
    for size, unit in ((86_400, "days"), (3_600, "h")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
