"""Lines that fit the terminal: text is folded at blanks, and commands so that they can still be copied."""

import re
import shutil
import sys

USUAL = 80  # columns where stdout is no terminal, and the least that is used on one
LABEL = re.compile(r"\s*(?:\S+(?: \S+)? {2,}|\S+(?: \S+){0,2}: +)?")  # "backbone  ", "  judge it:   "
MOST_HANGING = 16  # columns below a label that stay empty
COMMAND = re.compile(r"(?:python|sslkit|torchrun|tensorboard) ")
WORD = re.compile(r"""\s*(?:'[^']*'|"[^"]*"|\S)+""")  # with the blanks before it; quoted blanks do not end it
CHUNK = re.compile(r"\s*\S+")
REMARK = "   # "  # begins what is said of a command


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


def folded(text: str, width: int | None = None) -> str:
    """Return the text with lines of at most `width` (None: `columns()`), continued below the text of their label.

    A command is continued after a backslash, as a shell reads it. A word that is longer, such as a path, has a line of
    its own.
    """
    width = width or columns()
    return "\n".join(part for line in text.split("\n") for part in _lines(line, width, *_label(line)))


def reflowed(text: str, width: int | None = None) -> str:
    """Return a docstring with its paragraphs filled anew; a line that begins with a command stays one, see `folded`.

    What is said of a command is in brackets at the end of its line.
    """
    width, lines = width or columns(), []
    for line in text.strip().splitlines():
        if COMMAND.match(line):
            command, remark = re.fullmatch(r"(.*?)(?: {2,}\((.*)\))?", line).groups()
            lines.append(f"{command}{REMARK}{remark}" if remark and len(line) > width else line)
        elif lines and line and lines[-1] and not COMMAND.match(lines[-1]):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return "\n".join(part for line in lines for part in _lines(line, width, "", 0))


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
    if not COMMAND.match(rest):
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
