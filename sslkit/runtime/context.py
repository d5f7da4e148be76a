"""The run's context: how and where a function computes, beside what it computes on and its options."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing it takes a second
    import torch


SAVE_SECONDS = 600.0  # between two checkpoints of a training: what a killed process loses at most


def silent(line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """The run's context, made once by a public function or a command line and handed on whole.

    device: "auto" is a GPU if there is one; a name, or the device of this process.
    precision: of networks that are applied, not trained: "float32", or "bfloat16" autocast.
    batch_size: images of their forward pass; None: as many as are fast.
    workers: processes that decode, or that share the runs of a grid; "auto": as many as help.
    cache: folder of what is computed once; None: nothing is kept.
    out: folder of finished runs, checkpoints and pictures; None: nothing is kept.
    save_seconds: between two checkpoints of a training.
    seed: of every draw. progress: bars on a terminal. say: called with a line when something is done.
    """

    device: "str | torch.device" = "auto"
    precision: str = "float32"
    batch_size: int | None = None
    workers: int | str = "auto"
    cache: str | Path | None = "runs/cache"
    out: str | Path | None = None
    save_seconds: float = SAVE_SECONDS
    seed: int = 0
    progress: bool = True
    say: Callable[[str], None] = silent
