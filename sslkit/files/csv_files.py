"""CSV files for people, whose cells no spreadsheet runs."""

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from sslkit.files.writing import write_whole

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def write_csv(path: Path, lines: Iterable[Sequence[object]]) -> None:
    """Write a CSV for people, in UTF-8, whole or not at all; names in it come from outside.

    A text that a spreadsheet would run as a formula, since it begins with = + - @, their wide forms or a control
    character, gets a ' before it; a number does not. Raises UserError if the file cannot be written.
    """
    with (
        write_whole(path) as partial,
        partial.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        csv.writer(file).writerows([_plain(cell) for cell in line] for line in lines)


def _plain(cell: object) -> object:
    is_name = isinstance(cell, str) and cell and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if is_name and (cell[0] in "=+-@＝＋－＠" or not cell[0].isprintable()) else cell
