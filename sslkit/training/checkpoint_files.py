"""checkpoints/last.ckpt: written whole after each epoch, with a checksum; previous.ckpt is the one before it.

The checksum is the comment of the zip file that `torch.save` writes, so the file stays one that torch loads.
"""

import hashlib
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from sslkit.errors import UserError

MARK = b"sslkit-sha256:"
SEAL = re.compile(re.escape(MARK) + rb"[0-9a-f]{64}")
SEALED = len(MARK) + 64  # bytes
KINDS = {  # what a run reads from a checkpoint
    "epoch": int,
    "global_step": int,
    "pytorch-lightning_version": str,
    "state_dict": dict,
    "optimizer_states": list,
    "lr_schedulers": list,
    "loops": dict,
    "callbacks": dict,
}
CALLBACKS = {"Start": ("judged", "digest"), "History": ("rows", "seconds", "terms"), "Unreadable": ("paths",)}


def last(folder: Path) -> Path:
    """The path of a run's newest checkpoint."""
    return folder / "checkpoints" / "last.ckpt"


def previous(folder: Path) -> Path:
    """The path of the checkpoint before the last."""
    return folder / "checkpoints" / "previous.ckpt"


def seal(path: Path) -> None:
    """Append the SHA-256 of a file that `torch.save` wrote, as the comment of its zip format, and sync it."""
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(SEALED.to_bytes(2, "little"))  # of the comment that follows
        file.seek(0)
        digest = _digest(file, path.stat().st_size)
        file.write(MARK + digest)
        file.flush()
        os.fsync(file.fileno())


def damage(path: Path) -> str | None:
    """Return what is wrong with a checkpoint, None if it is whole: its checksum, its format, the parts that it holds.

    One that an earlier version wrote has no checksum; the CRC of each of its records is compared instead.
    """
    try:
        if not path.is_file():
            return "is no file" if os.path.lexists(path) else "is missing"
        with path.open("rb") as file:
            return _bytes_damage(file, path.stat().st_size) or _parts_damage(path)
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"


def newest_whole(folder: Path) -> tuple[Path | None, str | None]:
    """The checkpoint to go on from, None if there is none yet; and a note if it is not the last.

    Raises UserError if there are checkpoints and none of them is whole.
    """
    files = [last(folder), previous(folder)]
    if not any(map(os.path.lexists, files)):
        return None, None
    if os.path.lexists(files[0]) and not files[0].is_file():
        raise UserError(f"{files[0]} is no file: remove it, then resume=true goes on from the checkpoint before it")
    faults: list[str] = []
    for path in files:
        fault = damage(path)
        if fault is None:
            note = f"{'; '.join(faults)}: going on from {path}, the checkpoint before it" if faults else None
            return path, note
        faults.append(f"{path} {fault}")
    raise UserError(f"cannot resume: {'; '.join(faults)}; start a new run without resume=true, or put a whole one back")


def tidy(folder: Path) -> None:
    """Remove the checkpoint before the last: a finished run needs none to fall back on."""
    previous(folder).unlink(missing_ok=True)


def _digest(file: IO[bytes], size: int) -> bytes:
    """The SHA-256, in hexadecimal digits, of the next `size` bytes."""
    found = hashlib.sha256()
    for block in _blocks(file, size):
        found.update(block)
    return found.hexdigest().encode()


def _blocks(file: IO[bytes], size: int, most: int = 1 << 20) -> Iterator[bytes]:
    while size > 0 and (block := file.read(min(size, most))):
        size -= len(block)
        yield block


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
    except Exception as error:  # zipfile has no one class for what it meets in a damaged file
        return f"is no checkpoint, or a part of one ({_first_line(error)})"
    return f"is damaged: wrong CRC of its record {broken}" if broken else None


def _parts_damage(path: Path) -> str | None:
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # of any class: a stranger's pickle can make the reader fail anywhere
        return f"is no checkpoint of a run ({_first_line(error)})"
    missing = next(_missing(state), None)
    return f"is no checkpoint of a run: {missing} is missing" if missing else None


def _missing(state: Any) -> Iterator[str]:
    """The names of the parts that a run needs and this state lacks."""
    held = state if isinstance(state, dict) else {}
    yield from (name for name, kind in KINDS.items() if not isinstance(held.get(name), kind))
    callbacks = held.get("callbacks") or {}
    for name, keys in CALLBACKS.items():
        part = callbacks.get(name) if isinstance(callbacks.get(name), dict) else {}
        yield from (f"{name}.{key}" for key in keys if key not in part)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
