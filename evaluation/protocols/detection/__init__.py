"""Detection: Faster R-CNN on the backbone, all of it tuned, measured by COCO's and VOC's AP of boxes.

Sources: Song et al. 2024 (table VII), He et al. 2020 (MoCo, arXiv 1911.05722) and its public configuration.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluation.protocols.base import Subject
from evaluation.protocols.detection.measure import Opened, asked, measured, opened
from evaluation.protocols.detection.options import Options, Place
from evaluation.protocols.detection.output import TERMINAL
from evaluation.protocols.detection.results import seed_name
from evaluation.results.result import Result
from evaluation.results.unseen import UNSEEN
from sslkit.data.decode.fill import Fill
from sslkit.runtime.callers import process_kept
from sslkit.runtime.context import Runtime


@process_kept()
def detection(
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
    """AP on the test images of a detector trained on the training images, the mean over trials.

        results = evaluation.object_detection("runs/zoo/NAME", "clipart_boxes", schedule="smoke")

    model: see `evaluation.load_model`: a ResNet, or a plain ViT for arch="vit_pyramid". It is copied.
        Images of colour become gray (luma) for a network of one channel.
    data: see `evaluation.detection.open_boxes`, or {"train": Boxes, "test": Boxes}. root, cache, counts,
        range, opacity and fill: likewise.
    mirror: training images at random; None: unless names of classes differ by left and right.
    recipe: a name of RECIPES, which says data, schedule, arch and trials where they are None; without one they are
        none, "full", "c4" and 1.
    arch: "c4", "fpn" or "vit_pyramid". trainable: "full", or "frozen" for the backbone as it is.
    schedule: "full" (MoCo's for VOC 07 and 07+12, 1x for COCO), "full_2x", "short" or "smoke"; all but full are marked
        as not comparable to published numbers. steps, batch_size, lr: others than the schedule's, which are marked so.
    empty: training images without an object: "skip" (their number is printed, as published) or "keep" as background.
    trials: seeds seed, seed + 1, ...: new layers, order and draws. MoCo's authors advise the mean of 5 on VOC.
    out: folder of `detection.jsonl`, to which every finished trial is added, and of `detection/`: checkpoints from
        which a killed run goes on to the same weights, the detectors' weights, pictures. None: nothing is kept.
    precision: "float32", or "bfloat16" autocast. device: "auto" is a GPU if there is one. workers: processes that read
        images. image_size: of random:NAME. save_seconds: between two checkpoints. progress: show lines meanwhile.

    Under torchrun the ranks share every batch, with synchronised batch norm; ranks other than 0 return [].
    Returns COCO's result (coco_ap; coco_ap50 and coco_ap75 in `others`) and VOC's (voc_ap50; voc_ap, voc_ap75), each
    with a t interval over trials, None for one; on a set of VOC its own comes first.
    Raises UserError for options out of range, missing files, a network that does not fit, missing packages, and a
    loss that is NaN or infinite.
    """
    chosen = {"steps": steps, "batch_size": batch_size, "lr": lr, "empty": empty}
    options = Options(recipe=recipe, arch=arch, schedule=schedule, trials=trials, trainable=trainable, **chosen)
    how = {"image_size": image_size, "device": device, "workers": workers, "counts": counts}
    how |= {"range": range, "opacity": opacity, "fill": fill}
    how |= {"save_seconds": save_seconds, "progress": progress, "mirror": mirror}
    place = Place(seed=seed, out=out, root=root, cache=cache, precision=precision, **how)
    return asked("detection", model, data, options, place, masks=False)


def open(subject: Subject, options: Options) -> Opened:
    """Check the data, the network and the schedule before anything is computed. Raises UserError."""
    return opened("detection", subject, options, masks=False)


def run(opened: Opened, options: Options, runtime: Runtime) -> list[Result]:
    """Faster R-CNN on the backbone: GPU-days with schedule=full, minutes with smoke; see `detection`."""
    return measured(opened, options, runtime)


def beside(result: Result) -> tuple[str, ...]:
    """Every number under its own name, without the trials."""
    hidden = {UNSEEN, *map(seed_name, result.seeds)}  # the former stands in the cell
    return tuple(name for name in result.others if name not in hidden)


terminal = TERMINAL
