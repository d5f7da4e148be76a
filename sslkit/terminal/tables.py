"""Rows of cells as a table of text that fits the terminal, or of markdown; the first row is the header.

By hand: rich puts no rows below their names, and its import (0.08 s) takes longer than the shortest `--help`.
"""

import re
from collections.abc import Collection, Iterator, Sequence

from sslkit.terminal.say import columns, hung, printable

PART = re.compile(r"\s*(?:(?:\d+\.|±) )?\S+")  # of a cell, which is not folded: "word", "2. 0.344", "± 0.028"
GAP = "  "
INDENT = "  "  # of cells below a name on a line of its own


def align(lines: Sequence[Sequence[str]], right: Collection[int] = (), width: int | None = None) -> str:
    """Return aligned columns with a rule below the header, at most `width` wide (None: `columns()`).

    A wider table has its cells but the first folded at blanks; if that is not enough, each row's first cell on a line
    of its own; then blocks of columns below each other. A row of a single cell is a heading of those
    below it. right: indices of the columns aligned right.
    """
    width, lines = width or columns(), _printable(lines)
    if widths := _fit_widths(lines, width):
        return "\n".join(_rows(lines, widths, right, width))
    return below_names(lines, right, width)


def below_names(lines: Sequence[Sequence[str]], right: Collection[int] = (), width: int | None = None) -> str:
    """Return a table with each row's first cell on a line of its own, in blocks of the other columns that fit.

    The arguments are those of `align`.
    """
    width, lines = width or columns(), _printable(lines)
    blocks = _blocks(lines, width - len(INDENT))
    return "\n\n".join("\n".join(_block(lines, block, right, width)) for block in blocks)


def _printable(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[printable(cell, keep="") for cell in line] for line in lines]


def _fit_widths(lines: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """The widths of the columns, the widest narrowed by folding until all fit; None if single words are too wide."""
    cells = list(zip(*_whole(lines), strict=True))
    widths = [max(map(len, column)) for column in cells]
    least = [max((len(word) for cell in column for word in PART.findall(cell)), default=0) for column in cells]
    least[0] = widths[0]
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width
    if over > sum(widths) - sum(least):
        return None
    while over > 0:
        widest = max((i for i in range(len(widths)) if widths[i] > least[i]), key=lambda i: widths[i])
        widths[widest] -= 1
        over -= 1
    return widths


def _rows(lines: Sequence[Sequence[str]], widths: Sequence[int], right: Collection[int], width: int) -> Iterator[str]:
    """The lines of text of a table with these widths; cells that are wider are folded."""
    for number, line in enumerate(lines):
        if _spans(line, lines[0]):
            yield from hung(PART.findall(line[0]), "", 4, width)
            continue
        folds = [hung(PART.findall(cell), "", 0, w) for cell, w in zip(line, widths, strict=True)]
        for depth in range(max(map(len, folds))):
            parts = [fold[depth] if depth < len(fold) else "" for fold in folds]
            yield GAP.join(
                cell.rjust(w) if i in right else cell.ljust(w)
                for i, (cell, w) in enumerate(zip(parts, widths, strict=True))
            ).rstrip()
        if number == 0:
            yield GAP.join("-" * w for w in widths)


def _blocks(lines: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """The columns but the first, in as few groups as fit without folding."""
    groups: list[list[int]] = []
    for i in range(1, len(lines[0])):
        tried = [*groups[-1], i] if groups else [i]
        widths = [max(len(line[j]) for line in _whole(lines)) for j in tried]
        if groups and sum(widths) + len(GAP) * (len(widths) - 1) <= width:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _block(lines: Sequence[Sequence[str]], block: Sequence[int], right: Collection[int], width: int) -> Iterator[str]:
    """The lines of some columns, each row below its first cell."""
    inner = [[line[i] for i in block] for line in _whole(lines)]
    widths = _fit_widths(inner, width - len(INDENT)) or [max(map(len, column)) for column in zip(*inner, strict=True)]
    aside = {position for position, i in enumerate(block) if i in right}
    for number, line in enumerate(lines):
        yield from hung(PART.findall(line[0]), "", 0, width)
        if not _spans(line, lines[0]):
            shown = list(_rows([[line[i] for i in block]], widths, aside, width))
            yield from (INDENT + text for text in (shown if number == 0 else shown[:-1]) if text)


def _spans(line: Sequence[str], header: Sequence[str]) -> bool:
    return len(line) == 1 < len(header)


def _whole(lines: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """The rows that have all columns."""
    return [line for line in lines if not _spans(line, lines[0])]


def markdown(lines: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Return a markdown table. right: indices of the columns aligned right."""
    rule = ["---:" if i in right else "---" for i in range(len(lines[0]))]
    header, *rows = [[cell.replace("|", "\\|") for cell in line] for line in _printable(lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *rows))
