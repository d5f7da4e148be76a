"""checkpoints/last.ckpt: written whole, with a checksum; previous.ckpt is the one before it.

It is written after each epoch, inside an epoch every so many seconds, and when a signal stops the training. For the
checksum see `sslkit.files.checksums`.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from sslkit.errors import UserError, first_line
from sslkit.files import checksums
from sslkit.files.writing import write_whole
from sslkit.runtime.loop import Hook, Loop
from sslkit.runtime.signals import Stops
from sslkit.runtime.waiting import Orders
from sslkit.terminal import say

LAST, PREVIOUS = Path("checkpoints", "last.ckpt"), Path("checkpoints", "previous.ckpt")  # in a run's folder
Hooks = Mapping[str, Sequence[str]]  # the states that a run needs of its hooks, by the hook's class
KINDS = {  # parts of a checkpoint that a run needs
    "epoch": int,
    "batch": int,
    "step": int,
    "module": dict,
    "optimizer": dict,
    "schedule": dict,
    "precision": dict,
    "hooks": dict,
}


class Saving(Hook):
    """Saves after each epoch, between two steps every so many seconds, and at a signal; the last hook of a loop.

    It is the last one so that it saves the final state of all others. Of several processes the first decides, and all
    of them take part. A signal is obeyed once the state is saved, see `sslkit.runtime.signals`.
    write: writes a state of the loop; called on the first process. seconds: between two checkpoints.
    close: called before an epoch is saved. signals: see `Stops`.
    """

    def __init__(
        self,
        write: Callable[[dict[str, Any]], None],
        seconds: float,
        close: Callable[[Loop], None] = lambda loop: None,
        signals: Mapping[int, Callable[[], None]] | None = None,
    ) -> None:
        self.write, self.seconds, self.close = write, seconds, close
        self.stops = Stops(self._save_at_once, signals or {})
        self.loop: Loop | None = None
        self.orders: Orders | None = None

    def begin(self, loop: Loop) -> None:
        self.loop, self.orders = loop, Orders(self.seconds) if loop.world_size > 1 else None
        self.saved, self.when = loop.step, time.monotonic()
        self.stops.begin()

    def _is_due(self, is_last: bool) -> bool:
        """Return whether to save after this step, on all processes; is_last: of its epoch."""
        asked = self.stops.asked is not None
        if self.orders is None:
            return asked or self._is_late()
        if asked:
            self.orders.ask()
        return self.orders.given(self.loop.step, self._is_late, now=is_last)

    def batch_begin(self, loop: Loop) -> None:
        self.stops.busy = True

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        if not loop.is_between_steps:
            return
        is_last = loop.batch + 1 == loop.batches
        if self._is_due(is_last):
            loop.save(self.write)
            self._note_saved()
        # Several processes save together alone, at the end of a batch; the end of an epoch is awaited otherwise.
        self.stops.busy = self.orders is not None and not is_last
        self._obey_saved()

    def epoch_end(self, loop: Loop) -> None:
        self.stops.busy = True
        self.close(loop)
        if loop.is_main:
            self.write(loop.state())
        self._note_saved()
        self.stops.busy = False
        self._obey_saved()

    def end(self, loop: Loop) -> None:
        self.stops.end()
        self.orders = None  # its store would live on, and hand the next process group the addresses of this one

    def _is_late(self) -> bool:
        return time.monotonic() - self.when >= self.seconds

    def _note_saved(self) -> None:
        self.saved, self.when = self.loop.step, time.monotonic()

    def _obey_saved(self) -> None:
        """Obey a signal that has waited for the state of this step."""
        if self.stops.asked is not None and self.saved == self.loop.step:
            self.stops.obey(self.stops.asked)

    def _save_at_once(self) -> None:
        """Save outside a step, as at a signal while data are awaited or an epoch is evaluated."""
        loop = self.loop
        if self.saved == loop.step:
            return
        if self.orders is None:
            loop.save(self.write)
        elif loop.is_main and loop.is_whole:
            self.write(loop.state_before_end())
        self._note_saved()


class LastTwo:
    """The two checkpoints in the folder of a run.

    resumed: the one that the run continues from. Any other last.ckpt is damaged: the next checkpoint replaces it, and a
    whole previous.ckpt is kept.
    """

    def __init__(self, folder: Path, resumed: Path | None) -> None:
        self.path, self.previous = folder / LAST, folder / PREVIOUS
        self.is_whole = resumed == self.path

    def write(self, state: dict[str, Any]) -> None:
        """Write a state of the loop, and keep the checkpoint before it."""
        with write_whole(self.path) as partial:
            checksums.save(state, partial)
            if self.is_whole:
                os.replace(self.path, self.previous)
        self.is_whole = True


def how_to_go_on(folder: Path, command: str = say.CALL) -> str:
    """The end of a message on a run that has stopped: what the command does with its folder."""
    if (folder / LAST).is_file() or (folder / PREVIOUS).is_file():
        return f"{command} continues {folder}"
    return f"nothing was saved yet, so that {command} begins {folder} anew"


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
    missing = next(missing_parts(state, hooks), None)
    return f"is no checkpoint of a run: {missing} is missing" if missing else None


def missing_parts(state: Any, required: Hooks) -> Iterator[str]:
    """Yield the names of required parts that this state lacks."""
    held = state if isinstance(state, dict) else {}
    yield from (name for name, kind in KINDS.items() if not isinstance(held.get(name), kind))
    hooks = held.get("hooks") or {}
    for name, keys in required.items():
        hook = hooks.get(name) if isinstance(hooks.get(name), dict) else {}
        yield from (f"{name}.{key}" for key in keys if key not in hook)
