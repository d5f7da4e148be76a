"""What one word of a source names: a folder, a list of files, a video, or a pattern of paths."""

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sslkit.data.columns import Columns
from sslkit.data.sources.file_lists import is_list, parts_of_list, splits_of_list
from sslkit.data.sources.folder import parts_of_folder, splits_of_folder
from sslkit.data.sources.listing import Part, divide, splits_of_paths
from sslkit.data.sources.walk import VIDEOS, Kind, chosen, extension_of
from sslkit.errors import UserError
from sslkit.terminal.say import counted


class Named(Protocol):
    """Files that one word names. name: for tables. word: it says which split these are, if any."""

    name: str
    word: str

    def parts(self, kind: Kind, columns: Columns) -> Mapping[str, Part]: ...

    def splits(self, columns: Columns) -> Sequence[str]: ...


@dataclass(frozen=True)
class Folder:
    path: Path

    @property
    def name(self) -> str:
        return self.path.resolve().name or "files"

    @property
    def word(self) -> str:
        return self.name

    def parts(self, kind: Kind, columns: Columns) -> Mapping[str, Part]:
        return parts_of_folder(self.path, kind, columns)

    def splits(self, columns: Columns) -> Sequence[str]:
        return splits_of_folder(self.path, columns)


@dataclass(frozen=True)
class FileList:
    """root: that its paths are relative to; None: its own folder."""

    path: Path
    root: Path | None = None

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def word(self) -> str:
        return self.path.stem

    def parts(self, kind: Kind, columns: Columns) -> Mapping[str, Part]:
        return parts_of_list(self.path, self.root, kind, columns)

    def splits(self, columns: Columns) -> Sequence[str]:
        return splits_of_list(self.path, columns)


@dataclass(frozen=True)
class Video:
    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    word = name

    def parts(self, kind: Kind, columns: Columns) -> Mapping[str, Part]:
        if kind is not VIDEOS:
            raise UserError(f"{self.path} is a video: its frames are images, data=frames:{self.path}")
        check_no_table(columns, str(self.path))
        return divide(self.path.parent, [self.path.name], self.name)

    def splits(self, columns: Columns) -> Sequence[str]:
        return ("train",)


@dataclass(frozen=True)
class Pattern:
    pattern: str

    @property
    def root(self) -> Path:
        """The folder before the first sign of a pattern."""
        parts = Path(self.pattern).expanduser().parts
        first = next(index for index, name in enumerate(parts) if glob.has_magic(name))
        return Path(*parts[:first])

    @property
    def name(self) -> str:
        return self.root.resolve().name or "files"

    @property
    def word(self) -> str:
        return self.name

    def matches(self) -> tuple[list[str], int]:
        """The files, relative to the root, sorted, and the number of folders. Raises UserError without files."""
        matches = sorted(glob.iglob(os.path.expanduser(self.pattern), recursive=True))
        files = [path for path in matches if os.path.isfile(path)]
        if not files:
            folders = f"matches {counted(len(matches), 'folder')} and no file: for the files below write"
            problem = f"{folders} {self.pattern.rstrip('/')}/**/*" if matches else "matches no file"
            raise UserError(f"the pattern {self.pattern} {problem}")
        return [os.path.relpath(path, self.root) for path in files], len(matches) - len(files)

    def parts(self, kind: Kind, columns: Columns) -> Mapping[str, Part]:
        files, folders = self.matches()
        selection = chosen(self.root, files, kind)
        if folders and "**" not in self.pattern:
            selection.left_out["folders that were not looked into"] = folders
        if not selection.paths:
            raise UserError(
                f"the pattern {self.pattern} matches no {kind.name.removesuffix('s')}, and {selection.others}"
            )
        selection.warn_of_others(self.pattern, kind)
        check_no_table(columns, self.pattern)
        return divide(self.root, selection.paths, self.pattern)

    def splits(self, columns: Columns) -> Sequence[str]:
        return splits_of_paths(self.matches()[0], columns, self.pattern)


def find_folder_or_file(text: str) -> Folder | FileList | Video | None:
    """The folder, the list or the video that a word names, if it does. Raises UserError for a column, or no root."""
    path = _expand(text)
    if path.is_dir():
        return Folder(path)
    if path.is_file() and is_list(path):
        return FileList(path)
    if path.is_file() and extension_of(path.name) in VIDEOS.extensions:
        return Video(path)
    before, mark, label = text.rpartition("#")
    if mark and label and isinstance(find_folder_or_file(before), FileList):
        raise UserError(f"data={text}: a column of labels is named by columns.label={label}, with data={before}")
    before, colon, after = text.rpartition(":")
    if colon and is_list(Path(before)) and _expand(before).is_file():
        root = _expand(after)
        if not (after and root.is_dir()):
            raise UserError(f"data={text}: there is no folder {after!r}, which the paths in {before} are relative to")
        return FileList(_expand(before), root)
    return None


def find_pattern(text: str) -> Pattern | None:
    """The pattern that a word is, unless it is the name of a file."""
    return Pattern(text) if glob.has_magic(text) and not _expand(text).exists() else None


def _expand(text: str) -> Path:
    """The path with `~` expanded; one that does not exist if the system cannot look it up."""
    try:
        path = Path(text).expanduser()
        path.is_dir()
    except (OSError, RuntimeError, ValueError):  # a name too long; an unknown user
        return Path(os.devnull) / "none"
    return path


def check_no_table(columns: Columns, where: str) -> None:
    """Raises UserError for columns of files that no table describes."""
    for option, word in columns.needs_table:
        raise UserError(
            f"{option}={word}: no table describes the files of {where}: name the table, data=some.csv, put a "
            "metadata.csv beside them, or give a pattern of their names, whose value is in parentheses: '^([a-z]+)_'"
        )
