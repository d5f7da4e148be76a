"""The file of a manifest as `data=` reads it: the head and the columns that a table of one's own has not.

The first lines begin with `#`: the mark with the version and the source, then a decision in each. A spreadsheet may
have quoted their cells and filled them up with empty ones.
"""

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sslkit.data.manifest.head_options import parse
from sslkit.errors import UserError, first_line
from sslkit.files.writing import starts_formula
from sslkit.terminal import say
from sslkit.terminal.say import and_more, counted, words

PARQUET = ".parquet"
VERSION = 2  # of the form of the file; of 1 the last cells of the head were examples
MARK = "# sslkit manifest"
PATH, SPLIT, LABEL, GROUP, BYTES, DIGEST, LEFT_OUT = "path", "split", "label", "group", "bytes", "digest", "left out"
MEASURED = (DIGEST, "width", "height", "channels", "bits")
SEVERAL = "label "  # before the name of a class of which an image may have several
_FIRST = re.compile(rf'"?{MARK}"?[,;\t]"?([^,;\t"]*)"?[,;\t]?')
_FILES, _MEMBERS = "files", "members"
_OF_COLUMNS = "columns."  # begins the words of what the table's columns say


@dataclass(frozen=True)
class Head:
    """The head of a manifest. source: that it was made of, as it was typed; "" for an object of Python.

    lines: their number in the file. decisions: the options that it names, checked, such as {"range": [0, 4095]}.
    columns: the words that named columns of the source.
    """

    file: Path
    source: str
    lines: int
    decisions: Mapping[str, Any]
    columns: str = ""

    def again(self) -> str:
        """How the manifest is made anew."""
        if not self.source:
            return f"sslkit.look(..., out={str(self.file)!r})"
        return f"python recipes/look.py {words({'data': self.source, 'out': str(self.file)})} {self.columns}".rstrip()


def mark_cells(source: str, columns: str, *, are_files: bool) -> list[str]:
    """The cells of the mark. source, columns: see `Head`. are_files: each row is a file of its own."""
    return [MARK, str(VERSION), _FILES if are_files else _MEMBERS, source, columns]


def head_text(cells: Iterable[Sequence[str]]) -> str:
    """The lines of the head as a Parquet file keeps them."""
    return "\n".join("\t".join(line) for line in cells)


def lines_of_parquet(file: Path) -> list[str]:
    """A manifest or a table of paths in Parquet as the lines of a .csv.

    Raises UserError for one that holds images, and without pyarrow.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise UserError(f"reading {file} needs the package pyarrow: pip install pyarrow") from error
    try:
        schema = parquet.read_schema(file)
        images = [column.name for column in schema if "binary" in str(column.type)]  # also in a struct or a list
        if images:
            raise UserError(
                f"{file} holds images themselves, in its column {images[0]}, and no names of files: a Hugging Face "
                f"data set is data=hf:{file.parent}"
            )
        table = parquet.read_table(file)
    except (ArrowException, OSError) as error:
        raise UserError(f"cannot read {file}: {first_line(error)}") from error
    head = (schema.metadata or {}).get(MARK.encode())
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if head is not None:
        writer.writerows(line.split("\t") for line in head.decode(errors="replace").split("\n"))
    columns = [
        ["" if cell is None or cell != cell else str(cell) for cell in column.to_pylist()] for column in table.columns
    ]
    writer.writerows([table.column_names, *zip(*columns, strict=True)])
    return text.getvalue().splitlines()


def head_of(file: Path, lines: Sequence[str]) -> Head | None:
    """The head of a manifest; None for another table.

    Raises UserError for a manifest of another version, for one whose images are no files, and for an option in it that
    is none.
    """
    mark = _FIRST.match(lines[0]) if lines else None
    if mark is None:
        return None
    number = next((n for n, line in enumerate(lines) if not line.lstrip('"').startswith("#")), len(lines))
    cells = list(csv.reader(lines[:number], delimiter=max(",;\t", key=lines[0].count)))
    version, kind, source, columns = [*cells[0][1:5], "", "", "", ""][:4]
    head = Head(file, source, number, {}, columns)
    if version != str(VERSION):
        raise UserError(
            f"{file} is a manifest of version {version[:20]!r}, and this sslkit reads version {VERSION}: write it "
            f"anew, {head.again()}"
        )
    if kind != _FILES:
        raise UserError(
            f"{file} lists images that are no files of their own, so that none can be read from it: the data set is "
            f"data={source or '...'}"
        )
    return replace(head, decisions=_decisions(file, cells))


def _decisions(file: Path, cells: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The options in the last cells of the head. Raises UserError for a name or a value that is none."""
    decisions = {}
    for number, line in enumerate(cells, start=1):
        word = line[3].strip() if len(line) > 3 and number > 1 else ""
        name, equals, text = word.partition("=")
        if not equals or word.startswith(_OF_COLUMNS):
            continue
        try:
            decisions[name] = parse(name, text)
        except UserError as error:
            raise UserError(f"{file}, line {number}: {error}") from error
    return decisions


def check_columns(file: Path, head: Sequence[str]) -> None:
    """Raises UserError for a manifest that lost a column which is read. head: the names of its columns."""
    names = [name.strip() for name in head]
    if missing := [name for name in (PATH, SPLIT) if name not in names]:
        raise UserError(
            f"{file} is a manifest, and has no column {missing[0]!r} any more; its columns are {', '.join(names)[:200]}"
        )


def warn_of_unknown(file: Path, head: Sequence[str], used: Collection[str]) -> None:
    """Name the columns of a manifest that nothing reads, in a line. used: those that an option names."""
    expected = {PATH, SPLIT, LABEL, GROUP, BYTES, LEFT_OUT, *MEASURED, *used}
    names = [name.strip() for name in head]
    if unknown := [name for name in names if name not in expected and not name.startswith(SEVERAL)]:
        how = f"columns.label={unknown[0]} and the like name one, and columns.where= chooses rows by it"
        say.warn(f"{file}: its {counted(len(unknown), 'column')} {and_more(unknown)} are not read: {how}", stacklevel=6)
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{file} has two columns {twice!r}: remove or rename one")


def columns_of(head: Sequence[str], class_prefix: str) -> dict[str, int]:
    """The place of each column that is read. class_prefix: before the name of a class, in the result."""
    names = [name.strip() for name in head]
    places = {name: names.index(name) for name in names}
    of_name = {name: places[name] for name in (PATH, SPLIT, LABEL, GROUP, BYTES, DIGEST, LEFT_OUT) if name in places}
    several = {name: column for name, column in places.items() if name.startswith(SEVERAL)}
    return of_name | {f"{class_prefix}{name.removeprefix(SEVERAL)}": column for name, column in several.items()}


def unescape(cell: str) -> str:
    """A cell without the ' that `write_csv` puts before what a spreadsheet would run."""
    return cell[1:] if cell[:1] == "'" and starts_formula(cell[1:]) else cell


def rows_to_read(file: Path, cells: Mapping[str, list[str]]) -> tuple[dict[str, list[str]], list[int]]:
    """The cells of the rows that are not left out, without columns that are empty, and the places of these rows.

    A line counts those that are left out. Raises UserError where all are.
    """
    reasons = cells.get(LEFT_OUT) or [""] * len(cells[PATH])
    read = [row for row, reason in enumerate(reasons) if not reason.strip()]
    if not read and reasons:
        raise UserError(f"{file}: all of {counted(len(reasons), 'row')} are left out, by the column {LEFT_OUT!r}")
    if len(read) < len(reasons):
        number = f"{len(reasons) - len(read):,} of {counted(len(reasons), 'row')}"
        say.warn(f"{file}: {number} are left out, by the column {LEFT_OUT!r}", stacklevel=6)
    some = {what: [unescape(values[row]) for row in read] for what, values in cells.items() if what != LEFT_OUT}
    filled = {what: values for what, values in some.items() if what == PATH or any(map(str.strip, values))}
    return filled, read
