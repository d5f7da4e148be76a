"""Predictions of a detector on a data set, and their average precision."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from evaluation.tasks.detection.batches import readers
from evaluation.tasks.detection.coco_ap import CocoAP
from evaluation.tasks.detection.datasets.boxes import Boxes, Pixels, Target
from evaluation.tasks.detection.voc_ap import voc_ap
from sslkit.data.loader import plain_errors
from sslkit.errors import UserError
from sslkit.models.detectors.detector import detect
from sslkit.runtime.context import Runtime

if TYPE_CHECKING:  # importing it takes more than a second
    from torchvision.models.detection import FasterRCNN

Prediction = dict[str, Tensor]


@dataclass
class _Images(Dataset):
    """Images by row, without targets, for workers."""

    pixels: Pixels
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> Tensor:
        return self.pixels[row]


def predictions(
    detector: "FasterRCNN",
    data: Boxes,
    in_chans: int,
    runtime: Runtime,
    title: str = "testing",
) -> Iterator[Prediction]:
    """Yield what `detect` says of each image, in order: at most 100 boxes, of scores above .05.

    detector: in eval mode, on the device. in_chans: 3, or 1 for a network of gray images. title: of the bar.
    """
    workers = readers(runtime)
    context = "spawn" if workers else None
    loader = DataLoader(
        _Images(data.pixels, len(data)),
        batch_size=None,
        num_workers=workers,
        multiprocessing_context=context,
        generator=torch.Generator().manual_seed(0),  # otherwise it draws from the global one
    )
    hidden = None if runtime.progress else True
    for image in tqdm(plain_errors(loader), title, len(data), unit="image", leave=False, disable=hidden):
        yield detect(detector, image.to(runtime.device), in_chans)


class AveragePrecisions:
    """COCO's and VOC's AP of boxes, and with `masks` COCO's AP of masks, accumulated image by image.

    Masks are not kept: one image is in memory at a time. Raises UserError if torchmetrics or faster-coco-eval is not
    installed.
    """

    def __init__(self, voc_form: str, masks: bool) -> None:
        self.voc_form = voc_form
        self.kinds = [CocoAP(kind) for kind in (("box", "mask") if masks else ("box",))]
        self.boxes: list[Prediction] = []
        self.targets: list[Target] = []

    def update(self, prediction: Prediction, target: Target) -> None:
        """Add an image."""
        for kind in self.kinds:
            kind.update(prediction, target)
        self.boxes.append({name: value for name, value in prediction.items() if name != "masks"})
        self.targets.append({name: value for name, value in target.items() if name != "masks"})

    def compute(self) -> dict[str, float]:
        """{"coco_ap", "coco_ap50", "coco_ap75", "voc_ap", "voc_ap50", "voc_ap75"} and {"coco_mask_ap", ...}: fractions.

        Raises UserError if no image has a counted object.
        """
        values = self.kinds[0].compute() | voc_ap(self.boxes, self.targets, self.voc_form)
        for kind in self.kinds[1:]:
            values |= {name.replace("coco_", "coco_mask_"): value for name, value in kind.compute().items()}
        return values


def average_precisions(found: Iterator[Prediction], data: Boxes, masks: bool) -> dict[str, float]:
    """The AP of the predictions of all images of `data`, see `AveragePrecisions`. Raises UserError as that does."""
    return precisions_apart(found, data, masks, np.zeros(len(data), bool))[0]


def precisions_apart(
    found: Iterator[Prediction], data: Boxes, masks: bool, in_train: np.ndarray
) -> tuple[dict[str, float], dict[str, float]]:
    """The AP of all images, and that without the images in train, which is empty where no image or no object is left.

    in_train: (N,) bool of `data`; without any True the second is empty, too.
    """
    whole, rest = (AveragePrecisions(data.voc_form, masks) for _ in range(2))
    for row, prediction in enumerate(found):
        target = data.target(row)
        whole.update(prediction, target)
        if in_train.any() and not in_train[row]:
            rest.update(prediction, target)
    values = whole.compute()
    try:
        return values, rest.compute() if rest.boxes else {}
    except UserError:  # no object is left
        return values, {}
