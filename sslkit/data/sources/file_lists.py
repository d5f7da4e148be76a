"""Lists of files: paths, one a line, also with the number of a class behind; or a table of paths, labels and splits."""

import codecs
import gzip
import os
import re
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from sslkit.data.columns import NO_COLUMNS, Columns, has_value
from sslkit.data.manifest.head import PARQUET, Head, lines_of_parquet
from sslkit.data.sources.column_values import refuse, rows_of_splits
from sslkit.data.sources.file_tables import GZIP, TABLES, Rows, ending_of, rows_of_table
from sslkit.data.sources.label_texts import separator_of
from sslkit.data.sources.label_values import Measured, classes_of
from sslkit.data.sources.listed_files import find_files
from sslkit.data.sources.listing import Facts, Part, divide, splits_of_paths
from sslkit.data.sources.split_words import split_of
from sslkit.data.sources.walk import Kind, chosen
from sslkit.errors import UserError, first_line
from sslkit.files.reading import regular
from sslkit.files.stamps import Stamp, stamp_of, wait_for_tick
from sslkit.terminal import say
from sslkit.terminal.say import counted

TEXTS = (".txt", ".lst", ".list")
METADATA = ("metadata.csv", "metadata.jsonl")  # of an `imagefolder`, beside its images
_NUMBERED = re.compile(r"(.*\.[A-Za-z]\w{0,4})\s+(-?\d+)")  # a line `path/to/a.jpg 3`, as Caffe's
_MOST = 2**30  # bytes of a list: some ten million paths


def is_list(path: Path) -> bool:
    """Return whether a file is a list, by its ending."""
    return ending_of(path) in (*TEXTS, *TABLES)


def parts_of_list(file: Path, root: Path | None, kind: Kind, columns: Columns) -> dict[str, Part]:
    """The files of each split of a list, "train" first, in the order of the list.

    columns: of a table; those that are not given are of usual names.
    root: that its paths are relative to; None: the folder of the list. Names are relative to the folder that all share.
    Splits are those of a column, or else the first folders of the paths, as of a folder; so are classes, by the next
    folder. Files of another kind are left out, with a warning.
    Raises UserError for a list that cannot be read, for files that are missing, and for one that is named twice.
    """
    rows = _read_rows(file, columns)
    base = os.path.abspath(file.parent if root is None else root)
    again = f"; to write it anew {rows.head.again()}" if rows.head else ""
    paths = find_files(file, base, rows.paths, rows.lines, kind, again)
    _check_once(file, rows, paths)
    _check_sizes(file, rows, paths)
    folder = os.path.commonpath({os.path.dirname(path) for path in paths})
    below = [path[len(os.path.join(folder, "")) :] for path in paths]
    files = chosen(Path(folder), below, kind)
    if not files.paths:
        raise UserError(f"{file}: there are no {kind.name} among its {counted(len(paths), 'file')}: {files.others}")
    files.warn_of_others(str(file), kind)
    right = set(files.paths)
    of_kind = [row for row, path in enumerate(below) if path in right]
    return _parts(file, rows, Path(folder), below, of_kind, columns)


def head_of_list(file: Path, columns: Columns) -> Head | None:
    """The head of a manifest; None for another list. columns: as of `parts_of_list`."""
    return _read_rows(file, columns).head


def metadata_of(folder: Path) -> Path | None:
    """The table beside the images of a Hugging Face `imagefolder`; None without one."""
    return next((folder / name for name in METADATA if (folder / name).is_file()), None)


def facts_of_metadata(file: Path, paths: Sequence[str], columns: Columns) -> Facts | None:
    """The classes and groups of some paths by a table beside the images; None if it has neither.

    Warns of images without a class, and of a table that is not used. Raises UserError for a table that cannot be read,
    if columns of it are given.
    """
    try:
        rows = _read_rows(file, columns)
        labels = _labels(file, rows, columns)
    except UserError as error:
        if columns.needs_table:
            raise
        say.warn(f"{error}; it is not used", stacklevel=6)
        return None
    if rows.splits is not None:
        say.warn(f"{file}: its splits are read where it is named, data={file}", stacklevel=6)
    facts = Facts(labels, rows.groups, rows.several)
    if not facts:
        return None
    of_path = {os.path.normpath(path): row for row, path in enumerate(rows.paths)}
    matched = [of_path.get(path) for path in paths]
    facts = facts.take(matched)
    what = "label" if labels is not None or rows.several else "group"
    missing = sum(value is None for value in matched if facts.classes is None) or (facts.classes or []).count(None)
    if missing:
        say.warn(f"{file}: it has no {what} of {missing:,} of {counted(len(paths), 'file')}", stacklevel=6)
    return facts if missing < len(paths) else None


def compare_with_metadata(file: Path, paths: Sequence[str], classes: Sequence[str | None], split: str) -> None:
    """Say whether a table beside images has other labels or splits than their folders, which count.

    paths, classes: of the images of a split, by their folders. Other names of the same classes are no others.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = _parse_rows.__wrapped__(file, stamp_of(file.stat()), NO_COLUMNS)  # its lines are not said by this
            labels = _labels(file, rows, NO_COLUMNS)
    except UserError:  # no table of files: it is counted with what is left out
        return
    row_of = {os.path.normpath(path): row for row, path in enumerate(rows.paths)}
    there = [(row_of[path], name) for path, name in zip(paths, classes, strict=True) if path in row_of]
    pairs = {(labels[row], name) for row, name in there if labels and labels[row] is not None}
    words = {split_of(rows.splits[row]) for row, _ in there if rows.splits} - {None, split}
    others = ["labels"] if any(len(set(some)) < len(pairs) for some in zip(*pairs, strict=True)) else []
    others += ["splits"] if words and words | {split} != {"val", "test"} else []
    if others:
        remark = f"its {' and '.join(others)} are not those of the folders, which count; data={file} reads its own"
        say.warn(f"{file}: {remark}", stacklevel=6)


def splits_of_list(file: Path, columns: Columns) -> tuple[str, ...]:
    """The splits of a list, "train" first, without a look at its files. columns: as of `parts_of_list`."""
    rows = _read_rows(file, columns)
    if rows.splits is not None:
        return tuple(_of_column(file, rows, range(len(rows.paths)), columns))
    paths = [os.path.abspath(path.replace("\\", "/")) for path in rows.paths]
    folder = os.path.join(os.path.commonpath({os.path.dirname(path) for path in paths}), "")
    below = [path[len(folder) :] for path in paths]
    return splits_of_paths(below, columns, str(file))


def _parts(
    file: Path, rows: Rows, folder: Path, below: Sequence[str], kept: Sequence[int], columns: Columns
) -> dict[str, Part]:
    """The splits of a list. below: its paths. kept: the rows that are read."""
    labels = _labels(file, rows, columns)
    facts = Facts(labels, rows.groups, rows.several, rows.digests)
    usable = [below[row] for row in kept]
    if not facts and rows.splits is None and rows.digests is None:
        return divide(folder, usable, str(file))
    by_folder = divide(folder, usable, "")
    if labels is None and not rows.several:
        classes = {path: name for files in by_folder.values() for path, name in files.with_classes()}
        facts = replace(facts, classes=[classes.get(path) for path in below] if classes else None)
    row_of = {below[row]: row for row in kept}
    of_split = {split: [row_of[path] for path in files.paths] for split, files in by_folder.items()}
    if rows.splits is not None:
        of_split = _of_column(file, rows, kept, columns)
    return {
        split: Part(folder, [below[row] for row in inside], facts.take(inside)) for split, inside in of_split.items()
    }


def _labels(file: Path, rows: Rows, columns: Columns) -> list[str | None] | None:
    """The class of each row, None for one without; None altogether for a list without labels.

    Numbers, and texts of several classes in a column that is named, stay as they are.
    """
    if rows.labels is None:
        return None
    if columns.reads_numbers or (columns.label_column and separator_of(rows.labels)):
        return [label if has_value(label) else None for label in rows.labels]
    try:
        of_value = classes_of(rows.labels, str(file))
    except Measured as error:
        error.tell("its labels are", str(file), columns)
        return None
    return [None if of_value[value] is None else str(of_value[value]).strip() for value in rows.labels]


def _of_column(file: Path, rows: Rows, kept: Sequence[int], columns: Columns) -> dict[str, list[int]]:
    """The rows of each split by the column of splits. Raises UserError for other words, and without rows of train."""
    words, names = [rows.splits[row] for row in kept], [f"line {rows.lines[row]}" for row in kept]
    inside = rows_of_splits(words, names, str(file), columns)
    return {split: [kept[row] for row in some] for split, some in inside.items()}


def _check_sizes(file: Path, rows: Rows, paths: Sequence[str]) -> None:
    """Raise UserError for files that have another size than the manifest says."""
    sizes = rows.sizes or ()
    changed = [row for row, size in enumerate(sizes) if size is not None and os.stat(paths[row]).st_size != size]
    if changed:
        first = f"the first, in line {rows.lines[changed[0]]}, is {paths[changed[0]]}"
        raise UserError(
            f"{file}: {len(changed):,} of {counted(len(paths), 'file')} changed since it was written; {first}. Write "
            f"it anew, {rows.head.again()}, or empty their cells of bytes"
        )


def _check_once(file: Path, rows: Rows, paths: Sequence[str]) -> None:
    """Raise UserError for a file that is named twice."""
    seen: dict[str, int] = {}
    for row, path in enumerate(paths):
        if (before := seen.setdefault(path, row)) != row:
            lines = f"lines {rows.lines[before]} and {rows.lines[row]}"
            raise UserError(f"{file}: {lines} name the same file, {path}: leave one out")


def _read_rows(file: Path, columns: Columns) -> Rows:
    return _parse_rows(file, stamp_of(file.stat()), columns)


@lru_cache(maxsize=2)  # its splits are asked for several times
def _parse_rows(file: Path, stamp: Stamp, columns: Columns) -> Rows:
    """The rows of a list. stamp: of the file, so that a changed one is read again."""
    if stamp.bytes > _MOST:
        raise UserError(f"{file} has {stamp.bytes / 2**30:.1f} GiB, which is no list of files")
    wait_for_tick(stamp.changed)
    try:
        is_parquet = ending_of(file) == PARQUET
        lines = lines_of_parquet(file) if is_parquet else re.split("\r\n|\n|\r", _text(_content(file)))
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error
    except UnicodeError as error:
        raise UserError(f"{file} is no list of files: {first_line(error)}") from error
    if any("\0" in line for line in lines):
        raise UserError(f"{file} is no list of files: it has bytes of zero")
    if columns.needs_table and ending_of(file) not in TABLES:
        refuse(columns, str(file), "is a list of paths, which has no columns: give a table, or a pattern of the names")
    rows = rows_of_table(file, lines, columns) if ending_of(file) in TABLES else _paths(file, lines)
    if not rows.paths:
        raise UserError(f"{file} names no file")
    return rows


def _content(file: Path) -> bytes:
    """The bytes of a list, those that are packed where it ends in .gz. Raises OSError, EOFError and zlib.error."""
    if file.suffix.lower() != GZIP:
        return regular(file).read_bytes()
    with gzip.open(regular(file)) as stream:
        content = stream.read(_MOST + 1)
    if len(content) > _MOST:
        raise UserError(f"{file} unpacks to over {_MOST / 2**30:.1f} GiB, which is no list of files")
    return content


def _text(content: bytes) -> str:
    """The text of a list: UTF-8, or UTF-16 as Windows writes it. Names of other bytes stay as they are."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16")
    return content.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")


def _paths(file: Path, lines: Sequence[str]) -> Rows:
    numbers, paths = [], []
    for number, line in enumerate(map(str.strip, lines), start=1):
        if line:
            numbers.append(number)
            paths.append(line)
    if paths and paths[0] == str(len(paths) - 2):  # behind it the names of columns, and so many rows
        raise UserError(
            f"{file} begins with a count and is a table between blanks: write it with commas, tail -n +2 {file} | "
            "tr -s ' ' ',' > list.csv, and give data=list.csv"
        )
    if not paths or not all(map(_NUMBERED.fullmatch, paths)):
        return Rows(paths, numbers)
    say.warn(f"{file}: its lines are read as paths and the numbers of their classes", stacklevel=5)
    both = [_NUMBERED.fullmatch(path).groups() for path in paths]
    return Rows([path for path, _ in both], numbers, [label for _, label in both])
