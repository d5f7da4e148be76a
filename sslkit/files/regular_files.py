"""Files that end, since a pipe, a socket or a device may wait for ever, and what stands in the place of their data."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

PathLike = TypeVar("PathLike", str, Path)
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

STAND_IN = 64  # bytes of a file that tell `stand_in`
_STAND_INS = (
    (b"version https://git-lfs", "it is a pointer of Git LFS in place of the file: fetch that with git lfs pull"),
    (b"<!doctype html", "it is a page of HTML, as a failed download leaves it: download it again"),
    (b"<html", "it is a page of HTML, as a failed download leaves it: download it again"),
)


def regular(path: PathLike) -> PathLike:
    """Return the path of a file that others wrote, to be opened at once; links are followed.

    Raises OSError for a pipe, a socket and a device, in whose place a file is expected, and for what is missing.
    """
    kind = _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    if kind:
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
    return path


def is_there(path: Path) -> bool:
    """Return whether there is a file or a folder; a pipe, a socket or a device is none."""
    return path.is_file() or path.is_dir()


def stand_in(start: bytes) -> str:
    """The content in the place of a file's data, told by its first `STAND_IN` bytes, and the remedy; "" if unknown.

    Git LFS and servers leave such files, which have the right name and no content.
    """
    if not start:
        return "it is empty: copy it again"
    known = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return next((said for sign, said in _STAND_INS if known.startswith(sign)), "")


def stand_in_of(path: str | Path) -> str:
    """Return the `stand_in` of a file; "" for one that cannot be read."""
    with suppress(OSError), open(regular(path), "rb") as file:
        return stand_in(file.read(STAND_IN))
    return ""
