"""Instance segmentation: Mask R-CNN on the backbone, all of it tuned, measured by COCO's AP of masks and of boxes.

Sources: Song et al. 2024 (table VII), He et al. 2017 (arXiv 1703.06870), and MoCo's public configuration.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluation.protocols import detection
from evaluation.protocols.base import Subject
from evaluation.protocols.detection.measure import Opened, asked, measured, opened
from evaluation.protocols.detection.options import Options, Place
from evaluation.protocols.detection.output import TERMINAL
from evaluation.results.result import Result
from sslkit.data.decode.fill import Fill
from sslkit.runtime.callers import process_kept
from sslkit.runtime.context import Runtime


@process_kept()
def segmentation(
    model: Any,
    data: Any = None,
    *,
    recipe: str | None = Options.recipe,
    arch: str | None = Options.arch,
    schedule: str | None = Options.schedule,
    trials: int | None = Options.trials,
    trainable: str = Options.trainable,
    steps: int | None = Options.steps,
    batch_size: int | None = Options.batch_size,
    lr: float | None = Options.lr,
    empty: str = Options.empty,
    seed: int = Place.seed,
    image_size: int | None = Place.image_size,
    out: str | Path | None = Place.out,
    root: str | Path = Place.root,
    cache: str | Path | None = Place.cache,
    precision: str = Place.precision,
    device: str = Place.device,
    workers: int = Place.workers,
    counts: str = Place.counts,
    mirror: bool | None = Place.mirror,
    range: Sequence[float] | str | None = Place.range,
    opacity: bool | None = Place.opacity,
    fill: Fill = Place.fill,
    save_seconds: float = Place.save_seconds,
    progress: bool = Place.progress,
) -> list[Result]:
    """AP of the masks and boxes of a Mask R-CNN, the mean over trials; the arguments are those of `detection`.

    model: a ResNet or a plain ViT. data: with masks. out: folder of `segmentation.jsonl` and of `segmentation/`.
    Returns COCO's results of masks (coco_mask_ap; coco_mask_ap50, coco_mask_ap75 in `others`) and of boxes (coco_ap),
    and VOC's of boxes (voc_ap50), as `detection` does.
    Raises UserError as `detection` does, and for a set without masks.
    """
    chosen = {"steps": steps, "batch_size": batch_size, "lr": lr, "empty": empty}
    options = Options(recipe=recipe, arch=arch, schedule=schedule, trials=trials, trainable=trainable, **chosen)
    how = {"image_size": image_size, "device": device, "workers": workers, "counts": counts}
    how |= {"range": range, "opacity": opacity, "fill": fill}
    how |= {"save_seconds": save_seconds, "progress": progress, "mirror": mirror}
    place = Place(seed=seed, out=out, root=root, cache=cache, precision=precision, **how)
    return asked("segmentation", model, data, options, place, masks=True)


def open(subject: Subject, options: Options) -> Opened:
    """Check the data, the network and the schedule before anything is computed. Raises UserError."""
    return opened("segmentation", subject, options, masks=True)


def run(opened: Opened, options: Options, runtime: Runtime) -> list[Result]:
    """Mask R-CNN on the backbone: GPU-days with schedule=full, minutes with smoke; see `segmentation`."""
    return measured(opened, options, runtime)


def beside(result: Result) -> tuple[str, ...]:
    """Name the further metrics, as detection does."""
    return detection.beside(result)


terminal = TERMINAL
