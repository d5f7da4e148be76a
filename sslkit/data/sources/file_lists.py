"""Lists of files: paths, one a line, also with the number of a class behind; or a table of paths, labels and splits."""

import codecs
import glob
import os
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from sslkit.data.sources.file_tables import TABLES, Rows, rows_of_table
from sslkit.data.sources.label_values import Measured, classes_of
from sslkit.data.sources.listing import Part, divide
from sslkit.data.sources.split_words import split_of, usual
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
    return path.suffix.lower() in (*TEXTS, *TABLES)


def parts_of_list(file: Path, root: Path | None, kind: Kind, label: str = "") -> dict[str, Part]:
    """The files of each split of a list, "train" first, in the order of the list.

    label: the column of the classes in a table; "": that of a usual name.
    root: that its paths are relative to; None: the folder of the list. Names are relative to the folder that all share.
    Splits are those of a column, or else the first folders of the paths, as of a folder; so are classes, by the next
    folder. Files of another kind are left out, with a warning.
    Raises UserError for a list that cannot be read, for files that are missing, and for one that is named twice.
    """
    rows = _read_rows(file, label)
    base = os.path.abspath(file.parent if root is None else root)
    paths = [_find_file(os.path.join(base, path)) for path in rows.paths]
    if missing := [row for row, path in enumerate(paths) if path is None]:
        raise _missing(file, base, rows, missing)
    _check_once(file, rows, paths)
    folder = os.path.commonpath({os.path.dirname(path) for path in paths})
    below = [path[len(os.path.join(folder, "")) :] for path in paths]
    files = chosen(Path(folder), below, kind)
    if not files.paths:
        raise UserError(f"{file}: there are no {kind.name} among its {counted(len(paths), 'file')}: {files.others}")
    files.warn_of_others(str(file), kind)
    right = set(files.paths)
    return _parts(file, rows, Path(folder), below, [row for row, path in enumerate(below) if path in right])


def metadata_of(folder: Path) -> Path | None:
    """The table beside the images of a Hugging Face `imagefolder`; None without one."""
    return next((folder / name for name in METADATA if (folder / name).is_file()), None)


def labels_of_metadata(file: Path, paths: Sequence[str]) -> list[str | None] | None:
    """The class of each path by a table beside the images, None for one without; None altogether without labels.

    Warns of images without one, and of a table that is not used.
    """
    try:
        rows = _read_rows(file)
        labels = _labels(file, rows)
    except UserError as error:
        say.warn(f"{error}; it is not used", stacklevel=6)
        return None
    if rows.splits is not None:
        say.warn(f"{file}: its splits are read where it is named, data={file}", stacklevel=6)
    if labels is None:
        return None
    of_path = {os.path.normpath(path): label for path, label in zip(rows.paths, labels, strict=True)}
    matched_labels = [of_path.get(path) for path in paths]
    if missing := matched_labels.count(None):
        say.warn(f"{file}: it has no label of {missing:,} of {counted(len(paths), 'file')}", stacklevel=6)
    return matched_labels if missing < len(paths) else None


def splits_of_list(file: Path, label: str = "") -> tuple[str, ...]:
    """The splits of a list, "train" first, without a look at its files. label: as of `parts_of_list`."""
    rows = _read_rows(file, label)
    if rows.splits is not None:
        return tuple(_of_column(file, rows, range(len(rows.paths))))
    return tuple(divide(Path(), [os.path.normpath(path) for path in rows.paths], ""))


def _parts(file: Path, rows: Rows, folder: Path, below: Sequence[str], kept: Sequence[int]) -> dict[str, Part]:
    """The splits of a list. below: its paths. kept: the rows that are read."""
    labels = _labels(file, rows)
    usable = [below[row] for row in kept]
    if labels is None and rows.splits is None:
        return divide(folder, usable, str(file))
    by_folder = divide(folder, usable, "")
    if labels is None:
        classes = {path: name for files in by_folder.values() for path, name in files.with_classes()}
    else:
        classes = {below[row]: labels[row] for row in kept}
    of_split = {split: files.paths for split, files in by_folder.items()}
    if rows.splits is not None:
        of_split = {split: [below[row] for row in inside] for split, inside in _of_column(file, rows, kept).items()}
    return {
        split: Part(folder, paths, [classes.get(path) for path in paths] if classes else None)
        for split, paths in of_split.items()
    }


def _labels(file: Path, rows: Rows) -> list[str | None] | None:
    """The class of each row, None for one without; None altogether for a list without labels."""
    if rows.labels is None:
        return None
    try:
        of_value = classes_of(rows.labels, str(file))
    except Measured as error:
        reason = f"its labels are numbers such as {error}, which are no classes, and not used"
        say.warn(f"{file}: {reason}", stacklevel=5)
        return None
    return [None if of_value[value] is None else str(of_value[value]).strip() for value in rows.labels]


def _of_column(file: Path, rows: Rows, kept: Sequence[int]) -> dict[str, list[int]]:
    """The rows of each split by the column of splits. Raises UserError for other words, and without rows of train."""
    of_split: dict[str, list[int]] = {}
    nowhere = 0
    for row in kept:
        word = rows.splits[row]
        if not word.strip():
            nowhere += 1
            continue
        if (split := split_of(word)) is None:
            raise UserError(
                f"{file}, line {rows.lines[row]}: {word[:80]!r} is no split: these are called train, val (or valid, "
                "validation, dev) and test; of numbered folds only you know which one is held out"
            )
        of_split.setdefault(split, []).append(row)
    if nowhere:
        say.warn(f"{file}: {counted(nowhere, 'file')} without a split left out", stacklevel=5)
    if "train" not in of_split:
        raise UserError(f"{file}: its splits are {', '.join(of_split) or 'empty'}, and there is none to train on")
    return usual(of_split) or {"train": of_split["train"]}


def _find_file(path: str) -> str | None:
    """The file as it is on the disk, for a list of another system may write accents and separators in another way."""
    if os.path.isfile(path):
        return os.path.normpath(path)
    ways = (*(unicodedata.normalize(form, path) for form in ("NFC", "NFD")), path.replace("\\", "/"))
    return next((os.path.normpath(way) for way in ways if os.path.isfile(way)), None)


def _missing(file: Path, base: str, rows: Rows, missing: Sequence[int]) -> UserError:
    """The error for rows whose files are missing."""
    first = os.path.join(base, rows.paths[missing[0]])
    beside = sorted(glob.glob(f"{glob.escape(first)}.*"))
    what = "is a folder" if os.path.isdir(first) else "is not there"
    what = f"is not there, but {os.path.basename(beside[0])} is" if beside else what
    return UserError(
        f"{file}: {len(missing):,} of {counted(len(rows.paths), 'file')} cannot be found; the first, in line "
        f"{rows.lines[missing[0]]}, {what}: {first}. Paths are relative to {base}; for another folder write "
        f"data={file}:FOLDER"
    )


def _check_once(file: Path, rows: Rows, paths: Sequence[str]) -> None:
    """Raise UserError for a file that is named twice."""
    seen: dict[str, int] = {}
    for row, path in enumerate(paths):
        if (before := seen.setdefault(path, row)) != row:
            lines = f"lines {rows.lines[before]} and {rows.lines[row]}"
            raise UserError(f"{file}: {lines} name the same file, {path}: leave one out")


def _read_rows(file: Path, label: str = "") -> Rows:
    return _parse_rows(file, stamp_of(file.stat()), label)


@lru_cache(maxsize=2)  # its splits are asked for several times
def _parse_rows(file: Path, stamp: Stamp, label: str) -> Rows:
    """The rows of a list. stamp: of the file, so that a changed one is read again."""
    if stamp.bytes > _MOST:
        raise UserError(f"{file} has {stamp.bytes / 2**30:.1f} GiB, which is no list of files")
    wait_for_tick(stamp.changed)
    try:
        lines = re.split("\r\n|\n|\r", _text(regular(file).read_bytes()))
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeError as error:
        raise UserError(f"{file} is no list of files: {first_line(error)}") from error
    if any("\0" in line for line in lines):
        raise UserError(f"{file} is no list of files: it has bytes of zero")
    if label and file.suffix.lower() not in TABLES:
        raise UserError(f"{file}#{label}: a list of paths has no columns, and {label!r} would be one")
    rows = rows_of_table(file, lines, label) if file.suffix.lower() in TABLES else _paths(file, lines)
    if not rows.paths:
        raise UserError(f"{file} names no file")
    return rows


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
    if not paths or not all(map(_NUMBERED.fullmatch, paths)):
        return Rows(paths, numbers)
    say.warn(f"{file}: its lines are read as paths and the numbers of their classes", stacklevel=5)
    both = [_NUMBERED.fullmatch(path).groups() for path in paths]
    return Rows([path for path, _ in both], numbers, [label for _, label in both])
