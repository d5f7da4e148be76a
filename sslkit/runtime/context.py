"""The run's context: how and where a function computes, beside what it computes on and its options."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sslkit.options.settings import MOST_SEED, setting

CACHE = "runs/cache"  # folder of what is computed once
PRECISIONS = ("float32", "bfloat16")
SAVE_SECONDS = 600.0  # between two checkpoints of a training: what a killed process loses at most


def silent(line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, kw_only=True)
class Computing:
    """Where and how anything is computed: the same words, trained or applied."""

    device: str = setting("auto", "cpu, cuda, cuda:1, ...; auto: a GPU if there is one")
    workers: int | str = setting(
        "auto", "processes that decode; auto: as many as help", least=0, most=256, choices=("auto",)
    )
    cache: str | Path | None = setting(CACHE, "folder of what is computed once; null: nothing is kept")
    save_seconds: float = setting(SAVE_SECONDS, "between two checkpoints; a stop by a signal has one too", least=0)
    seed: int = setting(
        0, "of every draw: weights, order and views; episodes, held-out images, bootstrap", least=0, most=MOST_SEED
    )
    progress: bool = setting(True, "bars on a terminal")


@dataclass(frozen=True, kw_only=True)
class Runtime(Computing):
    """The run's context, made once by a public function or a command line and handed on whole.

    say: called with a line when something is done.
    """

    precision: str = setting(
        "float32", "of networks that are applied, not trained: float32, or bfloat16 autocast", choices=PRECISIONS
    )
    batch_size: int | None = setting(
        None, "images a forward pass; null: 256 on a GPU, fewer large ones on the CPU", least=1
    )
    out: str | Path | None = setting(None, "folder of finished runs, checkpoints and pictures; null: nothing is kept")
    say: Callable[[str], None] = silent
