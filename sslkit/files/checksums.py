"""Checkpoints with a checksum, so that a damaged one is detected.

The checksum is stored as the zip comment, so torch still loads the file.
"""

import hashlib
import os
import re
import zipfile
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from sslkit.errors import first_line

MARK = b"sslkit-sha256:"
SEAL = re.compile(re.escape(MARK) + rb"[0-9a-f]{64}")
SEALED = len(MARK) + 64  # bytes


def save(content: Any, path: Path) -> None:
    """Write what `torch.save` writes, with its checksum, and sync it. Raises OSError where the disk is full."""
    import torch

    held = BytesIO()  # torch's own writing of files does not say that a disk is full
    torch.save(content, held)
    path.write_bytes(held.getbuffer())
    seal(path)


def seal(path: Path) -> None:
    """Append the SHA-256 of a file written by `torch.save`, as its zip comment, and sync it."""
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(SEALED.to_bytes(2, "little"))  # length of the comment
        file.seek(0)
        digest = _digest(file, path.stat().st_size)
        file.write(MARK + digest)
        file.flush()
        os.fsync(file.fileno())


def damage(path: Path) -> str | None:
    """Return the damage in the bytes of a file written by `torch.save`, None if there is no damage.

    A file without a checksum is from an earlier version: the CRC of each of its records is compared instead.
    """
    try:
        if not path.is_file():
            return "is no file" if os.path.lexists(path) else "is missing"
        with path.open("rb") as file:
            return _bytes_damage(file, path.stat().st_size)
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"


def _digest(file: IO[bytes], size: int) -> bytes:
    """The SHA-256, in hexadecimal digits, of the next `size` bytes."""
    digest = hashlib.sha256()
    while size > 0 and (block := file.read(min(size, 1 << 20))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest().encode()


def _bytes_damage(file: IO[bytes], size: int) -> str | None:
    if not size:
        return "is empty"
    file.seek(-min(size, SEALED), os.SEEK_END)
    written = file.read()
    file.seek(0)
    if SEAL.fullmatch(written):
        is_same = _digest(file, size - SEALED) == written.removeprefix(MARK)
        return None if is_same else "is damaged: its content does not have the checksum it was written with"
    try:
        with zipfile.ZipFile(file) as records:
            if records.comment:
                return "is damaged: its checksum cannot be read"
            broken = records.testzip()
    except Exception as error:  # zipfile raises many classes for a damaged file
        return f"is no checkpoint, or a part of one ({first_line(error)})"
    return f"is damaged: wrong CRC of its record {broken}" if broken else None
