"""Options of detection and of segmentation, and where and how their trials are done: the one place of the defaults."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from evaluation.protocols._option_types import (
    CountOrNone,
    CountsRule,
    PositiveOrNone,
    Precision,
    Readers,
    Seconds,
    Seed,
    Trials,
)
from evaluation.protocols.base import Subject
from evaluation.protocols.detection.body import TRAINABLE
from evaluation.protocols.detection.detector import ARCHITECTURES
from evaluation.tuning.checkpoint import EVERY
from sslkit.settings import Limits


@dataclass(frozen=True, kw_only=True)
class Options:
    """See `evaluation.protocols.detection.detection`."""

    arch: Annotated[str, Limits(choices=ARCHITECTURES)] = "c4"
    schedule: str = "full"
    trials: Trials = 1
    trainable: Annotated[str, Limits(choices=TRAINABLE)] = "full"
    steps: CountOrNone = None
    batch_size: CountOrNone = None
    lr: PositiveOrNone = None


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where and how trials are done.

    out: folder of NAME.jsonl (the records) and of NAME/ (checkpoints, finished detectors' weights, pictures); None: a
        temporary one. root, counts: of the data, see `open_boxes`. seed: of the first trial.
    device: "auto" is a GPU if there is one. workers: processes that read images. every: seconds between checkpoints.
    """

    seed: Seed = 0
    out: str | Path | None = None
    root: str | Path = "data"
    precision: Precision = "float32"
    device: str = "auto"
    workers: Readers = 0
    counts: CountsRule = "raise"
    every: Seconds = EVERY
    progress: bool = True

    @classmethod
    def of(cls, subject: Subject) -> "Place":
        """Return the settings of a subject of evaluation; workers=auto is 0 here."""
        told = ("precision", "device", "counts", "progress", "workers")
        how = {name: subject.how[name] for name in told if subject.how.get(name, "auto") != "auto"}
        return cls(seed=subject.seed, out=subject.out, root=subject.root, **how)
