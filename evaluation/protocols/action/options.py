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
from evaluation.protocols.action.recipes import PROTOCOLS
from evaluation.protocols.action.runs import FEATURES
from sslkit.options.settings import Limits
from sslkit.runtime.context import SAVE_SECONDS, silent


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Further words of recipes/action_eval.py.

    checkpoint: zoo entry of a network of clips, random:NAME (slow_r50, r3d_18, ...), or a list
    data: video:FOLDER, kinetics400, ucf101, hmdb51, NAME:ROOT; null: the recipe's or the entry's
    """

    checkpoint: str | list[str] | None = None
    data: str | None = None


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of the training and of the test; see also `evaluation.protocols.action.action`.

    protocol: linear or fine_tune; null: the recipe's, else linear
    recipe: a name of those above; null: paper_k400 for linear, else paper_ucf101
    folds: official splits, as [1,2,3]; null: the recipe's
    epochs: null: the recipe's; so are the next four
    batch_size: clips a step; a rate that is not given goes with it
    lr: highest learning rate
    weight_decay: added to the gradient, but for batch normalisation
    dropout: in front of the linear layer
    frames: of a clip; null: the network's
    stride: frames from one to the next; null: as pretrained, else 64 / frames
    clips: of a test video
    crops: of a test clip: 1 or 3
    rule: where the test clips start: slowfast, slowfast_offset or endpoints
    features: once: the linear protocol on features that are extracted once, not augmented
    precision: of the network: float32 or bfloat16
    on_error: a video that cannot be decoded: skip (counted and named), or raise
    save_seconds: between two checkpoints; a stop by a signal has one too
    """

    protocol: Annotated[str | None, Limits(choices=PROTOCOLS)] = None
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
    features: Annotated[str, Limits(choices=FEATURES)] = "live"
    precision: Precision = "float32"
    on_error: OnError = "skip"
    save_seconds: Seconds = SAVE_SECONDS


@dataclass(frozen=True, kw_only=True)
class Place:
    """Output folder, device, seed and other settings of the runs; see also `evaluation.protocols.action.action`.

    seed: of order, clips, crops, colours and the head's start
    image_size: pixels; null: the network's
    cache: folder of the index of videos
    counts: a published set with another number of videos than published: raise, or warn
    mirror: training clips at random; null: unless names of classes differ by left and right
    workers: processes that decode
    progress: bars on a terminal
    """

    seed: Seed = 0
    image_size: SizeOrNone = None
    root: str | Path = "data"
    cache: str | Path | None = "runs/cache"
    out: str | Path = "runs/evaluation"
    counts: CountsRule = "raise"
    mirror: bool | None = None
    device: str = "auto"
    workers: ReadersOrAuto = "auto"
    progress: bool = True
    say: Callable[[str], None] = silent
