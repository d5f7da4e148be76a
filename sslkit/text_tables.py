"""Rows of cells as a table of text or markdown; the first row is the header."""

from collections.abc import Collection, Sequence


def aligned(lines: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Return aligned columns with a rule below the header. right: indices of the columns aligned right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = []
    for line in (lines[0], ["-" * width for width in widths], *lines[1:]):
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        shown.append("  ".join(cells).rstrip())
    return "\n".join(shown)


def markdown(lines: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Return a markdown table. right: indices of the columns aligned right."""
    rule = ["---:" if i in right else "---" for i in range(len(lines[0]))]
    header, *rows = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *rows))
