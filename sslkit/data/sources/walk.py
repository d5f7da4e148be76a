"""The files below a folder: which are of a kind, and how many are not, so that nothing is left out without a word."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sslkit.data.decode.formats import EXTENSIONS as IMAGE_EXTENSIONS
from sslkit.data.decode.formats import START, looks_like_an_image
from sslkit.data.video.reader import EXTENSIONS as VIDEO_EXTENSIONS
from sslkit.errors import UserError
from sslkit.terminal import say
from sslkit.terminal.say import counted

# Made by desktops, archivers, disk stations and notebooks beside any data, some of them copies of the images.
USUAL = frozenset((
    ".DS_Store", ".localized", ".directory", ".nomedia", ".gitignore", ".gitattributes", ".gitkeep", ".keep", ".git",
    ".cache", ".ipynb_checkpoints", "Thumbs.db", "desktop.ini", "__MACOSX", "@eaDir",
))  # fmt: skip
_BESIDE = frozenset((  # extensions that no image has, however many such files lie beside the images: never opened
    "txt", "xml", "json", "jsonl", "yaml", "yml", "csv", "tsv", "md", "html", "cls", "py", "ipynb", "npy", "npz", "pkl",
    "pt", "pth", "mat", "zip", "tar", "gz", "log", "tfrecord", "arrow", "parquet",
))  # fmt: skip
_SHOWN = 6  # kinds of files in a line
_LONGEST = 8  # letters of an extension


@dataclass(frozen=True)
class Kind:
    """The files that a source reads. name: of them in messages. extensions: that tell them.

    by_content: files of an unknown or no extension are opened, and belong to them if they begin as an image does.
    """

    name: str
    extensions: tuple[str, ...]
    by_content: bool = False

    def has(self, folder: str | Path, path: str) -> bool:
        """Return whether a file below a folder is of this kind."""
        by_name = extension_of(path) in self.extensions
        return by_name or (self.by_content and is_image(os.path.join(folder, path)))


IMAGES = Kind("images", IMAGE_EXTENSIONS, by_content=True)
VIDEOS = Kind("videos", VIDEO_EXTENSIONS)


@dataclass
class Found:
    """The files below a folder.

    paths: of the kind asked for, relative to the folder. folders: all that were walked, "" is the folder itself.
    left_out: number of the other files by kind: `.txt`, `without extension`, `hidden`. one_of_them: the first.
    """

    paths: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    one_of_them: str = ""

    def leave_out(self, path: str, kind: str) -> None:
        self.left_out[kind] += 1
        self.one_of_them = self.one_of_them or path

    def warn_of_others(self, where: str, kind: Kind) -> None:
        """Warn of what was left out, in one line. kind: of the files that were not."""
        if self.left_out:
            count = counted(len(self.paths), kind.name.removesuffix("s"))
            others = counted(self.left_out.total(), "other file")
            which = (self.left_out.total() == 1 and self.one_of_them) or self.others
            say.warn(f"{where}: {count}; left out {others}: {which}", stacklevel=4)

    @property
    def others(self) -> str:
        return kinds(self.left_out)


def kinds(left_out: Counter[str]) -> str:
    """`9 .txt, 3 .xml, 2 without extension`."""
    counts = sorted(left_out.items(), key=lambda kind: (-kind[1], kind[0]))
    more = [f"{sum(number for _, number in counts[_SHOWN:]):,} of other kinds"] if len(counts) > _SHOWN else []
    return ", ".join([*(f"{number:,} {kind}" for kind, number in counts[:_SHOWN]), *more])


def walk(folder: Path, kind: Kind) -> Found:
    """The files of a kind below a folder; links are followed, each folder once.

    Hidden files and folders are left out, those of `USUAL` without being counted.
    Raises UserError for a folder that cannot be listed.
    """
    files, pending, seen = Found(), [""], set()
    extensions = frozenset(kind.extensions)
    while pending:
        below = pending.pop()
        here = os.path.join(folder, below)
        try:
            stat = os.stat(here)
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            raise UserError(f"cannot list {here}: {error.strerror}") from error
        if (stat.st_dev, stat.st_ino) in seen:  # a link to a folder above
            continue
        seen.add((stat.st_dev, stat.st_ino))
        files.folders.append(below)
        start = os.path.join(below, "") if below else ""
        for entry in entries:
            name = entry.name
            path = start + name
            if name[0] == "." or name in USUAL:
                if not is_usual(name):
                    files.leave_out(path, "hidden")
            elif _is_folder(entry):
                pending.append(path)
            elif name.rpartition(".")[2].lower() in extensions or (
                kind.by_content and is_image(os.path.join(here, name))
            ):
                files.paths.append(path)
            else:
                files.leave_out(path, kind_of(name))
    return files


def chosen(folder: Path, paths: Sequence[str], kind: Kind) -> Found:
    """The files of a kind among some, `paths` below a folder, in their order."""
    files = Found()
    for path in paths:
        if kind.has(folder, path):
            files.paths.append(path)
        else:
            files.leave_out(path, kind_of(path))
    return files


def is_usual(name: str) -> bool:
    """Return whether a file or folder belongs to no data, as those that Finder and Explorer leave behind."""
    return name in USUAL or name.startswith("._")


def is_image(path: str) -> bool:
    """Return whether a file of an unknown or no extension begins as an image does. Known other kinds are not opened."""
    if extension_of(path) in NOT_OPENED or not os.path.isfile(path):  # a pipe would wait
        return False
    try:
        with open(path, "rb", buffering=0) as file:
            return looks_like_an_image(file.read(START))
    except OSError:
        return False


def extension_of(path: str) -> str:
    """The letters after the last dot of a name, in lower case; "" without a dot, and for a name of dots alone."""
    stem, dot, extension = os.path.basename(path).rpartition(".")
    return extension.lower() if dot and stem.strip(".") else ""


def kind_of(name: str) -> str:
    """`.txt`, or `without extension`, for a file that is counted."""
    extension = extension_of(name)
    return f".{extension}" if extension.isalnum() and len(extension) <= _LONGEST else "without extension"


def _is_folder(entry: os.DirEntry) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


NOT_OPENED = _BESIDE | frozenset(VIDEO_EXTENSIONS)
