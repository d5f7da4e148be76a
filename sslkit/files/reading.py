"""Files that others wrote: a pipe, a socket or a device may wait for ever, and any fault of JSON is one clear error."""

import errno
import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from sslkit.errors import UserError

PathLike = TypeVar("PathLike", str, Path)
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

LARGEST = 2**26  # bytes; enough for a card with the paths of a million unreadable images
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
    head = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return next((meaning for sign, meaning in _STAND_INS if head.startswith(sign)), "")


def stand_in_of(path: str | Path) -> str:
    """Return the `stand_in` of a file; "" for one that cannot be read."""
    with suppress(OSError), open(regular(path), "rb") as file:
        return stand_in(file.read(STAND_IN))
    return ""


def read_json(path: Path, remedy: str) -> Any:
    """The content of a JSON file. remedy: how to fix a damaged file, for the message.

    Raises UserError if the file cannot be read, is larger than 64 MiB, or is not JSON.
    """
    try:
        size = regular(path).stat().st_size
        if size > LARGEST:
            raise UserError(f"{path} has {size:,} bytes, more than the {LARGEST:,} that sslkit reads as JSON: {remedy}")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no JSON ({error}): {remedy}") from error
    return parse_json(text, path, remedy)


def escape(content: Any) -> Any:
    """JSON content whose texts `parse_json` takes: bytes of file names that are no text become \\udcNN."""
    if isinstance(content, str):
        return content.encode(errors="backslashreplace").decode()
    if isinstance(content, dict):
        return {escape(name): escape(value) for name, value in content.items()}
    return [escape(value) for value in content] if isinstance(content, (list, tuple)) else content


def parse_json(text: str, path: Path, remedy: str) -> Any:
    """The content of a JSON text read from `path`. Raises UserError if it is not JSON."""
    try:
        content = json.loads(text)
        json.dumps(content, ensure_ascii=False).encode()  # halves of surrogate pairs cannot be printed
    except RecursionError as error:
        raise UserError(f"{path} is no JSON that can be read (it is nested too deeply): {remedy}") from error
    except ValueError as error:
        raise UserError(f"{path} is no JSON ({error}): {remedy}") from error
    return content
