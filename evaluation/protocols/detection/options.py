"""Options of detection and of segmentation, and where and how their trials are done: the one place of the defaults."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from evaluation.protocols._option_types import (
    CountOrNone,
    CountsRule,
    FillOrAuto,
    PositiveOrNone,
    Precision,
    RangeOrNone,
    Readers,
    Seconds,
    Seed,
    SizeOrNone,
    TrialsOrNone,
)
from evaluation.protocols.detection import recipes
from evaluation.protocols.detection.body import TRAINABLE
from evaluation.protocols.detection.boxes import EMPTY
from evaluation.protocols.detection.detector import ARCHITECTURES
from evaluation.protocols.detection.recipes import TASKS
from sslkit.data.decode.fill import AUTO
from sslkit.data.image_options import CACHE
from sslkit.options.settings import Limits
from sslkit.runtime.context import SAVE_SECONDS


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Further words of recipes/detect.py.

    checkpoint: zoo entry, random:ENTRY, timm:NAME:FILE, published:NAME:FILE, ..., or a list
    data: clipart_boxes, coco:FOLDER, voc07, voc0712, voc0712_paper or coco2017
    task: boxes, or masks (instance segmentation); null: the recipe's, else boxes
    """

    checkpoint: str | list[str] | None = None
    data: str | None = None
    task: Annotated[str | None, Limits(choices=tuple(TASKS))] = None


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of the training; see also `evaluation.protocols.detection.detection`.

    recipe: paper_voc07, paper_voc0712 or paper_coco: data, task, schedule and trials
    schedule: full, full_2x (COCO), short or smoke; null: the recipe's, else full
    arch: c4, fpn, or vit_pyramid for a plain ViT; null: c4
    trials: trained from as many seeds; null: the recipe's, else 1
    trainable: full, or frozen: the backbone stays as it is
    steps: null: the schedule's; so are the next two
    batch_size: images a step, of all processes; the rate goes with it
    lr: learning rate at that batch
    empty: training images without an object: skip (counted, as published), or keep (as background)
    """

    recipe: str | None = None
    schedule: str | None = None
    arch: Annotated[str | None, Limits(choices=ARCHITECTURES)] = None
    trials: TrialsOrNone = None
    trainable: Annotated[str, Limits(choices=TRAINABLE)] = "full"
    steps: CountOrNone = None
    batch_size: CountOrNone = None
    lr: PositiveOrNone = None
    empty: Annotated[str, Limits(choices=EMPTY)] = "skip"

    def settled(self) -> "Options":
        """Return them with what the recipe or else the usual says of None. Raises UserError for an unknown recipe."""
        said, own = recipes.found(self.recipe), vars(self)
        return replace(self, **{name: said[name] for name in ("schedule", "arch", "trials") if own[name] is None})


@dataclass(frozen=True, kw_only=True)
class Place:
    """Output folder, data folder, device and other settings of the trials.

    seed: of the first trial
    precision: float32 or bfloat16
    image_size: pixels, for random:NAME, whose stem depends on it; null: 224
    root: of the data, see `open_boxes`
    cache: folder of the digests of files; null: none is kept
    counts: a published set with another number of images than published: raise, or warn
    mirror: training images at random; null: unless names of classes differ by left and right
    range: pixels of more than 8 bits: [low,high], the values that become 0 and 255; auto: the least and the greatest
        of the training images; null: found in a sample of them
    opacity, fill: see `sslkit.open_images`, of a sample of the training images
    out: folder of NAME.jsonl (the records) and of NAME/ (checkpoints, finished detectors' weights, pictures); None: a
        temporary one
    save_seconds: between two checkpoints; a stop by a signal has one too
    device: "auto" is a GPU if there is one
    workers: processes that read images, for each process that trains
    progress: bars on a terminal
    """

    seed: Seed = 0
    precision: Precision = "float32"
    image_size: SizeOrNone = None
    root: str | Path = "data"
    cache: str | Path | None = CACHE
    counts: CountsRule = "raise"
    mirror: bool | None = None
    range: RangeOrNone = None
    opacity: bool | None = None
    fill: FillOrAuto = AUTO
    out: str | Path | None = None
    save_seconds: Seconds = SAVE_SECONDS
    device: str = "auto"
    workers: Readers = 0
    progress: bool = True
