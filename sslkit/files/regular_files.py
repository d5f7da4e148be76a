"""Files that end: a pipe, a socket or a device may wait for ever where it is opened, or never end."""

import errno
import os
import stat
from pathlib import Path
from typing import TypeVar

PathLike = TypeVar("PathLike", str, Path)
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


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
