"""checkpoints/last.ckpt: written whole after each epoch, with a checksum; previous.ckpt is the one before it.

For the checksum see `sslkit.files.checksums`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sslkit.errors import UserError, first_line
from sslkit.files import checksums

KINDS = {  # parts of a checkpoint that a run needs
    "epoch": int,
    "step": int,
    "module": dict,
    "optimizer": dict,
    "schedule": dict,
    "precision": dict,
    "hooks": dict,
}
HOOKS = {"Start": ("judged", "digest"), "History": ("rows", "seconds", "terms"), "Unreadable": ("paths",)}


def last(folder: Path) -> Path:
    """The path of a run's newest checkpoint."""
    return folder / "checkpoints" / "last.ckpt"


def previous(folder: Path) -> Path:
    """The path of the checkpoint before the newest one."""
    return folder / "checkpoints" / "previous.ckpt"


def damage(path: Path) -> str | None:
    """Return the damage of a checkpoint, in its bytes or as a missing part; None if there is no damage."""
    return checksums.damage(path) or _parts_damage(path)


def newest_whole(folder: Path) -> tuple[Path | None, str | None]:
    """The checkpoint to resume from, None if there is none yet; and a note if it is not the newest.

    Raises UserError if there are checkpoints and none of them is whole.
    """
    files = [last(folder), previous(folder)]
    if not any(map(os.path.lexists, files)):
        return None, None
    if os.path.lexists(files[0]) and not files[0].is_file():
        raise UserError(f"{files[0]} is no file: remove it, then resume=true continues from the checkpoint before it")
    faults: list[str] = []
    for path in files:
        fault = damage(path)
        if fault is None:
            note = f"{'; '.join(faults)}: continuing from {path}, the checkpoint before it" if faults else None
            return path, note
        faults.append(f"{path} {fault}")
    raise UserError(f"cannot resume: {'; '.join(faults)}; start a new run without resume=true, or restore a whole one")


def tidy(folder: Path) -> None:
    """Remove the previous checkpoint, which a finished run does not need."""
    previous(folder).unlink(missing_ok=True)


def _parts_damage(path: Path) -> str | None:
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a damaged or foreign pickle can raise any class
        return f"is no checkpoint of a run ({first_line(error)})"
    missing = next(_missing(state), None)
    return f"is no checkpoint of a run: {missing} is missing" if missing else None


def _missing(state: Any) -> Iterator[str]:
    """Yield the names of required parts that this state lacks."""
    held = state if isinstance(state, dict) else {}
    yield from (name for name, kind in KINDS.items() if not isinstance(held.get(name), kind))
    hooks = held.get("hooks") or {}
    for name, keys in HOOKS.items():
        part = hooks.get(name) if isinstance(hooks.get(name), dict) else {}
        yield from (f"{name}.{key}" for key in keys if key not in part)
