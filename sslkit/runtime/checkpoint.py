"""checkpoints/last.ckpt: written whole after each epoch, with a checksum; previous.ckpt is the one before it.

For the checksum see `sslkit.files.checksums`.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from sslkit.errors import UserError, first_line
from sslkit.files import checksums
from sslkit.files.writing import write_whole
from sslkit.runtime.loop import Hook, Loop

LAST, PREVIOUS = Path("checkpoints", "last.ckpt"), Path("checkpoints", "previous.ckpt")  # in a run's folder
Hooks = Mapping[str, Sequence[str]]  # the states that a run needs of its hooks, by the hook's class
KINDS = {  # parts of a checkpoint that a run needs
    "epoch": int,
    "step": int,
    "module": dict,
    "optimizer": dict,
    "schedule": dict,
    "precision": dict,
    "hooks": dict,
}


class SaveLast(Hook):
    """The last hook of a loop, so that it saves the final state of all others.

    close: called before it saves. resumed: the checkpoint that the run continues from. Any other last.ckpt is damaged:
    the next checkpoint replaces it, and a whole previous.ckpt is kept.
    """

    def __init__(self, folder: Path, close: Callable[[Loop], None], resumed: Path | None = None) -> None:
        self.path, self.previous = folder / LAST, folder / PREVIOUS
        self.close = close
        self.is_whole = resumed == self.path

    def epoch_end(self, loop: Loop) -> None:
        self.close(loop)
        if not loop.is_main:
            return
        with write_whole(self.path) as partial:
            checksums.save(loop.state(), partial)
            if self.is_whole:
                os.replace(self.path, self.previous)
        self.is_whole = True


def damage(path: Path, hooks: Hooks) -> str | None:
    """Return the damage of a checkpoint, in its bytes or as a missing part; None if there is no damage."""
    return checksums.damage(path) or _parts_damage(path, hooks)


def newest_whole(folder: Path, hooks: Hooks) -> tuple[Path | None, str | None]:
    """The checkpoint to resume from, None if there is none yet; and a note if it is not the newest.

    Raises UserError if there are checkpoints and none of them is whole.
    """
    files = [folder / LAST, folder / PREVIOUS]
    if not any(map(os.path.lexists, files)):
        return None, None
    if os.path.lexists(files[0]) and not files[0].is_file():
        raise UserError(f"{files[0]} is no file: remove it, then resume=true continues from the checkpoint before it")
    faults: list[str] = []
    for path in files:
        fault = damage(path, hooks)
        if fault is None:
            note = f"{'; '.join(faults)}: continuing from {path}, the checkpoint before it" if faults else None
            return path, note
        faults.append(f"{path} {fault}")
    raise UserError(f"cannot resume: {'; '.join(faults)}; start a new run without resume=true, or restore a whole one")


def _parts_damage(path: Path, hooks: Hooks) -> str | None:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a damaged or foreign pickle can raise any class
        return f"is no checkpoint of a run ({first_line(error)})"
    missing = next(_missing(state, hooks), None)
    return f"is no checkpoint of a run: {missing} is missing" if missing else None


def _missing(state: Any, required: Hooks) -> Iterator[str]:
    """Yield the names of required parts that this state lacks."""
    held = state if isinstance(state, dict) else {}
    yield from (name for name, kind in KINDS.items() if not isinstance(held.get(name), kind))
    hooks = held.get("hooks") or {}
    for name, keys in required.items():
        part = hooks.get(name) if isinstance(hooks.get(name), dict) else {}
        yield from (f"{name}.{key}" for key in keys if key not in part)
