"""Tables of files: CSV, or JSON objects, one a line, as in the metadata.jsonl of a Hugging Face `imagefolder`."""

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sslkit.data.columns import Columns
from sslkit.data.expected_contents import BYTES as LENGTH
from sslkit.data.expected_contents import SHA256
from sslkit.data.manifest.head import (
    BYTES,
    DIGEST,
    PARQUET,
    Head,
    check_columns,
    columns_of,
    head_of,
    rows_to_read,
    unescape,
    warn_of_unknown,
)
from sslkit.data.row_filter import OPTION
from sslkit.data.sources.column_values import filter_rows
from sslkit.data.sources.split_words import OF_YES_OR_NO, split_by_yes_or_no
from sslkit.errors import UserError, first_line, nearest
from sslkit.terminal import say

JSON_LINES = ".jsonl"
GZIP = ".gz"  # behind the ending of a list that is packed
TABLES = (".csv", ".tsv", JSON_LINES, PARQUET)
_YES_OR_NO = "split by yes or no"
COLUMNS = {  # what a column holds: its names, in small letters and without blanks, _ and -; the first that there is
    "path": ("path", "file", "filename", "filepath", "image", "imagepath", "img", "imageid", "video", "videopath"),
    "label": ("label", "labels", "class", "classname", "target", "category"),
    "split": ("split", "set", "subset", "fold"),
    _YES_OR_NO: tuple(OF_YES_OR_NO),
}
_LIKE_A_LABEL = re.compile(r"[_ -](label|class|category|target)$|^(label|class|category|target)[_ -](id|name|idx)$")
_SHOWN = 4  # columns
_HEX = re.compile(f"{SHA256}([0-9a-fA-F]{{{2 * LENGTH}}})")
CLASS = "class "  # before the name of a column of yes or no
_OF_OPTION = {"image": "path"}  # columns.image


@dataclass(frozen=True)
class Rows:
    """The rows of a list. labels, splits, groups: as written; None without such a column.

    lines: their numbers in the file. several: the cells of each of several columns of labels; {} for no such.
    sizes, digests: of a manifest, in bytes, None for a row that says none. head: of a manifest; None for another list.
    """

    paths: list[str]
    lines: list[int]
    labels: list[str] | None = None
    splits: list[str] | None = None
    groups: list[str] | None = None
    several: Mapping[str, list[str]] = field(default_factory=dict)
    sizes: list[int | None] | None = None
    digests: list[bytes | None] | None = None
    head: Head | None = None


def rows_of_table(file: Path, lines: Sequence[str], columns: Columns) -> Rows:
    """The rows of a table, of the kind that its ending says; columns that are not given are those of usual names.

    Raises UserError.
    """
    return _json_lines(file, lines, columns) if ending_of(file) == JSON_LINES else _table(file, lines, columns)


def ending_of(file: Path) -> str:
    """The ending that says of which kind a list is, in small letters: `.csv` of some.csv.gz."""
    return Path(file.name.lower().removesuffix(GZIP)).suffix


def _table(file: Path, lines: Sequence[str], wanted: Columns) -> Rows:
    manifest = head_of(file, lines)
    before = manifest.lines if manifest else 0
    lines = lines[before:]
    try:
        reader = csv.reader(lines, delimiter=max(",;\t", key=lines[0].count) if lines else ",")
        head = next(reader, [])
        rows = [(before + reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise UserError(f"{file} is no table: {error}") from error
    columns = _of_manifest(file, head, wanted) if manifest else _columns(file, head, wanted)
    for number, row in rows:
        if len(row) != len(head):
            raise UserError(f"{file}, line {number} has {len(row)} cells, and its first line {len(head)}")
    as_read = unescape if manifest else str
    chosen = _filter(file, head, columns, wanted, lambda column: [as_read(row[column]) for _, row in rows], len(rows))
    rows = [rows[row] for row in chosen]
    cells = {what: [row[column] for _, row in rows] for what, column in columns.items()}
    numbers = [number for number, _ in rows]
    if manifest is None:
        return _rows(file, numbers, cells)
    cells, places = rows_to_read(file, cells)
    numbers = [numbers[row] for row in places]
    sizes = [_size(file, number, cell) for number, cell in zip(numbers, cells.get(BYTES, ()), strict=False)]
    digests = [_digest(file, number, cell) for number, cell in zip(numbers, cells.get(DIGEST, ()), strict=False)]
    return replace(_rows(file, numbers, cells), sizes=sizes or None, digests=digests or None, head=manifest)


def _size(file: Path, line: int, cell: str) -> int | None:
    if cell.strip() and not cell.strip().isdecimal():
        raise UserError(f"{file}, line {line}: {cell[:40]!r} in the column {BYTES!r} is no number of bytes")
    return int(cell) if cell.strip() else None


def _digest(file: Path, line: int, cell: str) -> bytes | None:
    if not cell.strip():
        return None
    if not (match := _HEX.fullmatch(cell.strip())):
        raise UserError(
            f"{file}, line {line}: {cell[:40]!r} in the column {DIGEST!r} is no {SHA256} with {2 * LENGTH} letters of "
            "0 to 9 and a to f: empty the cell, or remove the column"
        )
    return bytes.fromhex(match[1])


def _json_lines(file: Path, lines: Sequence[str], wanted: Columns) -> Rows:
    """The keys of the objects are the columns. A list is a label only in a column that is named."""
    try:
        objects = {number: json.loads(line) for number, line in enumerate(lines, start=1) if line.strip()}
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is no table of JSON objects, one a line: {first_line(error)}") from error
    if not all(isinstance(entry, dict) for entry in objects.values()):
        raise UserError(f"{file} is no table of JSON objects, one a line")
    head = list(dict.fromkeys(key for entry in objects.values() for key in entry))
    columns = _columns(file, head, wanted)

    def cells_of(column: int) -> list[str]:
        return [_cell(entry.get(head[column])) for entry in objects.values()]

    chosen = _filter(file, head, columns, wanted, cells_of, len(objects))
    objects = {number: objects[number] for number in map(list(objects).__getitem__, chosen)}
    rows = _rows(file, list(objects), {what: cells_of(column) for what, column in columns.items()})
    if not wanted.label_column and any(cell[:1] in ("[", "{") for cell in rows.labels or ()):
        remark = "its labels are lists, and not used: columns.label= with the column's name reads several an image"
        say.warn(f"{file}: {remark}", stacklevel=5)
        return replace(rows, labels=None)
    return rows


def _filter(
    file: Path,
    head: Sequence[str],
    columns: Mapping[str, int],
    wanted: Columns,
    cells_of: Callable[[int], list[str]],
    count: int,
) -> list[int]:
    """The rows that `columns.where` keeps. columns: the places of those that are used. cells_of: a place's cells.

    A column is named as in the first line, or by a usual name of what is read from it.
    """
    used = {name: columns[what] for what, names in COLUMNS.items() if what in columns for name in names}
    of_classes = {_plain(what.removeprefix(CLASS)): at for what, at in columns.items() if what.startswith(CLASS)}
    places = {**used, **of_classes, **_places(head)}

    def cells(name: str) -> list[str]:
        if _plain(name) not in places:
            there = [column.strip() for column in head]
            raise UserError(f"{OPTION}={wanted.where!r}: {file} has no column {name!r}: {nearest(name, there)}")
        return cells_of(places[_plain(name)])

    return filter_rows(wanted, cells, count, str(file))


def _cell(value: object) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text.encode(errors="replace").decode()  # it may hold half of a pair of surrogates


def _rows(file: Path, lines: Sequence[int], cells: Mapping[str, Sequence[str]]) -> Rows:
    """The rows of a table. cells: of the columns that are used, those of each line. Raises UserError without a path."""
    paths = [path.strip() for path in cells["path"]]
    if "" in paths:
        raise UserError(f"{file}, line {lines[paths.index('')]} names no file")
    splits = cells.get("split")
    name, yes_or_no = next(((what, some) for what, some in cells.items() if what in OF_YES_OR_NO), ("", ()))
    if splits is None and yes_or_no:
        splits = [split_by_yes_or_no(name, cell) or cell for cell in yes_or_no]
    several = {what.removeprefix(CLASS): list(values) for what, values in cells.items() if what.startswith(CLASS)}
    return Rows(paths, list(lines), cells.get("label"), splits, cells.get("group"), several)


def _columns(file: Path, head: Sequence[str], wanted: Columns) -> dict[str, int]:
    """The place of each column that is used, with a warning that names them.

    Raises UserError without paths, without a column that is wanted, and for several that may be the label.
    """
    places = _places(head)
    columns = {what: next((places[name] for name in names if name in places), None) for what, names in COLUMNS.items()}
    named = _find_columns(file, head, wanted)
    columns |= {"label": None} if wanted.label is not None else {}
    columns |= named
    if wanted.label is None and columns["label"] is None:
        columns["label"] = _like_a_label(file, head)
    if wanted.split is not None and "split" not in named:  # a pattern of names
        columns |= {"split": None, _YES_OR_NO: None}
    if columns["split"] is not None:
        columns[_YES_OR_NO] = None
    if columns["path"] is None:
        raise UserError(
            f"{file}: its first line names no column of files, called {', '.join(COLUMNS['path'][:5])}; it is "
            f"{', '.join(head)[:200]!r}; a column of classes is called {_column_names('label')}, of splits "
            f"{_column_names('split')}"
        )
    used = {what: index for what, index in columns.items() if index is not None}
    description = ", ".join(f"{what}s from {head[index].strip()!r}" for what, index in used.items())
    others = [repr(name.strip()) for index, name in enumerate(head) if index not in used.values()][:_SHOWN]
    unused = f"; of the others, such as {', '.join(others)}, none is used" if others else ""
    if others and columns["label"] is None:
        column = others[0].strip("'\"")
        unused += f" (a column of classes is called {_column_names('label')}, or is named: columns.label={column})"
    say.warn(f"{file}: its columns are read as {description}{unused}", stacklevel=5)
    return {_plain(head[index]) if what == _YES_OR_NO else what: index for what, index in used.items()}


def _of_manifest(file: Path, head: Sequence[str], wanted: Columns) -> dict[str, int]:
    """The place of each column of a manifest that is used: those that are wanted in the place of its own."""
    check_columns(file, head)
    columns, named = columns_of(head, CLASS), _find_columns(file, head, wanted)
    warn_of_unknown(file, head, [head[at].strip() for at in named.values()])
    if wanted.label is not None:
        columns = {what: index for what, index in columns.items() if what != "label" and not what.startswith(CLASS)}
    if wanted.split is not None:
        columns.pop("split")
    return columns | named


def _find_columns(file: Path, head: Sequence[str], wanted: Columns) -> dict[str, int]:
    """The place of each column that is wanted by its name. Raises UserError for one that is not there."""
    places, named = _places(head), {}
    for option, word in wanted.of_tables:
        if _plain(word) not in places:
            names = [name.strip() for name in head]
            raise UserError(f"{option}={word}: {file} has no such column: {nearest(word, names)}")
        what = option.removeprefix("columns.")
        what = f"{CLASS}{word}" if what == "label" and len(wanted.labels) > 1 else _OF_OPTION.get(what, what)
        named[what] = places[_plain(word)]
    return named


def _places(head: Sequence[str]) -> dict[str, int]:
    """The first place of each name."""
    return {_plain(name): index for index, name in reversed(list(enumerate(head)))}


def _like_a_label(file: Path, head: Sequence[str]) -> int | None:
    """The place of the column called like one of labels, as fine_label and class_id. Raises UserError for several."""
    like = [index for index, name in enumerate(head) if _LIKE_A_LABEL.search(name.strip().lower())]
    if len(like) > 1:
        names = [head[column].strip() for column in like]
        raise UserError(
            f"{file}: any of its columns {', '.join(names)} may be the label: name it, columns.label={names[0]}"
        )
    return like[0] if like else None


def _column_names(what: str) -> str:
    *first, last = COLUMNS[what]
    return f"{', '.join(first)} or {last}"


def _plain(name: str) -> str:
    return name.strip().lower().translate(str.maketrans("", "", " _-"))
