"""The files that a list names: as they are on this disk, for lists are written on others."""

import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from sslkit.data.sources.walk import Kind, walk
from sslkit.errors import UserError
from sslkit.terminal import say
from sslkit.terminal.say import counted

_SHOWN = 3  # files that are missing, in a message


def find_files(file: Path, base: str, names: Sequence[str], lines: Sequence[int], kind: Kind, again: str) -> list[str]:
    """The path of each file that is named in a list.

    names: relative to `base`, or absolute. Where files are missing, those below `base` are taken, if the first folders
    of all names are not there; or those of the same names in another folder below, or with another ending. A line says
    so.
    lines: of the names in the list. again: the end of a message, how the list is written anew.
    Raises UserError if some are still missing.
    """
    paths = [_find_file(os.path.join(base, name)) for name in names]
    missing = [row for row, path in enumerate(paths) if path is None]
    if not missing:
        return paths
    there = _below_base(base, names, missing) or _anywhere(base, names, missing, kind)
    if left := [row for row in missing if row not in there]:
        raise _missing(file, base, names, lines, left, again)
    first, are = missing[0], "is" if len(missing) == 1 else "are"
    number = f"{len(missing):,} of {counted(len(names), 'path')}"
    say.warn(f"{file}: {number} {are} not there as written: {names[first]} is read as {there[first]}", stacklevel=5)
    return [there.get(row, path) for row, path in enumerate(paths)]


def _find_file(path: str) -> str | None:
    """The file as it is on the disk, for a list of another system may write accents and separators in another way."""
    if os.path.isfile(path):
        return os.path.normpath(path)
    ways = (*(unicodedata.normalize(form, path) for form in ("NFC", "NFD")), path.replace("\\", "/"))
    return next((os.path.normpath(way) for way in ways if os.path.isfile(way)), None)


def _below_base(base: str, names: Sequence[str], missing: Sequence[int]) -> dict[int, str] | None:
    """The files by row without the same first folders of all names, as of another machine; None if one is missing."""
    parts = {row: PurePosixPath(names[row].replace("\\", "/")).parts for row in missing}
    first = parts[missing[0]]
    tops = next((n for n in range(1, len(first)) if os.path.isfile(os.path.join(base, *first[n:]))), None)
    if tops is None or any(some[:tops] != first[:tops] for some in parts.values()):
        return None
    there = {row: _find_file(os.path.join(base, *some[tops:])) for row, some in parts.items()}
    return None if None in there.values() else there


def _anywhere(base: str, names: Sequence[str], missing: Sequence[int], kind: Kind) -> dict[int, str]:
    """The only file of the kind by row, in its folder or else below `base`, that is called so, with any ending."""
    of_stem: dict[str, list[str]] = {}
    for path in walk(Path(base), kind).paths:
        of_stem.setdefault(os.path.splitext(os.path.basename(path))[0], []).append(path)
    there: dict[int, str] = {}
    for row in missing:
        name = names[row].replace("\\", "/")
        for stem in (name, os.path.splitext(name)[0]):
            some = of_stem.get(os.path.basename(stem), ())
            some = [path for path in some if f"/{os.path.splitext(path)[0]}".endswith(f"/{os.path.normpath(stem)}")]
            some = [path for path in some if path.endswith(f"/{name}")] or some
            some = [path for path in some if os.path.dirname(path) == os.path.dirname(name)] or some
            if len(some) == 1 and os.path.isfile(os.path.join(base, some[0])):
                there.setdefault(row, os.path.normpath(os.path.join(base, some[0])))
    return there


def _missing(
    file: Path, base: str, names: Sequence[str], lines: Sequence[int], missing: Sequence[int], again: str
) -> UserError:
    first = os.path.join(base, names[missing[0]])
    what = "is a folder" if os.path.isdir(first) else "is not there"
    others = [names[row] for row in missing[1:_SHOWN]]
    then = f" (then {', '.join(others)})" if others else ""
    few = "It is of another data set, or its files were moved. " if 2 * len(missing) > len(names) > 1 else ""
    return UserError(
        f"{file}: {len(missing):,} of {counted(len(names), 'file')} cannot be found; the first, in line "
        f"{lines[missing[0]]}, {what}: {first}{then}. {few}Paths are relative to {base}; for another folder write "
        f"data={file}:FOLDER{again}"
    )
