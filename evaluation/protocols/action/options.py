"""Options of action recognition, and where and how its runs are done: the one place of the defaults."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from evaluation.protocols._option_types import (
    Count,
    CountOrNone,
    CountsOrNone,
    CountsRule,
    DecayOrNone,
    OnError,
    PositiveOrNone,
    Precision,
    ReadersOrAuto,
    Seconds,
    Seed,
    SizeOrNone,
)
from evaluation.protocols.action.training import SAVE_SECONDS
from evaluation.protocols.base import Subject
from sslkit.settings import Limits


@dataclass(frozen=True, kw_only=True)
class Options:
    """See `evaluation.protocols.action.action`."""

    protocol: str | None = None
    recipe: str | None = None
    folds: CountsOrNone = None
    epochs: CountOrNone = None
    batch_size: CountOrNone = None
    lr: PositiveOrNone = None
    weight_decay: DecayOrNone = None
    dropout: Annotated[float | None, Limits(least=0, below=1)] = None
    frames: SizeOrNone = None
    stride: SizeOrNone = None
    clips: Count = 10
    crops: Annotated[int, Limits(least=1, most=3)] = 3
    rule: str = "slowfast"
    features: str = "live"
    precision: Precision = "float32"
    on_error: OnError = "skip"
    save_seconds: Seconds = SAVE_SECONDS


@dataclass(frozen=True, kw_only=True)
class Place:
    """Output folder, device, seed and other settings of the runs; see `evaluation.protocols.action.action`."""

    seed: Seed = 0
    root: str | Path = "data"
    out: str | Path = "runs/evaluation"
    cache: str | Path | None = "runs/cache"
    counts: CountsRule = "raise"
    device: str = "auto"
    workers: ReadersOrAuto = "auto"
    image_size: SizeOrNone = None
    progress: bool = True
    say: Callable[[str], None] = lambda line: None

    @classmethod
    def of(cls, subject: Subject) -> "Place":
        """Return the settings of a subject of evaluation."""
        told = ("cache", "counts", "device", "workers", "progress")
        how = {name: subject.how[name] for name in told if name in subject.how}
        return cls(seed=subject.seed, root=subject.root, out=subject.out, **how)
