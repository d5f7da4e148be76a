"""The contract of a segmentation set: images with a class for each pixel.

Classes are numbered from 0, in the order of `classes`; IGNORED pixels count nowhere.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import Dataset

from evaluation.tasks.detection.datasets.boxes import Boxes, Pixels
from sslkit.errors import UserError

IGNORED = 255  # of VOC's and Cityscapes' files, the largest of uint8
MOST_CLASSES = 254  # what uint8 holds beside IGNORED, with one to spare


class Maps(Protocol):
    """The label maps of the N images of a data set. Must be picklable, since workers may be spawned."""

    def __getitem__(self, row: int) -> np.ndarray:
        """(H, W) uint8, classes from 0 and IGNORED. Raises UserError for one that cannot be read."""

    def take(self, rows: np.ndarray) -> "Maps":
        """A subset of the maps, in the order given."""

    def update_digest(self, digest: Any) -> None:
        """Feed the identity of the maps to a hashlib object."""


@dataclass(frozen=True, eq=False)
class LabelMaps(Dataset):
    """One split of a segmentation set; set[i] -> (image (3, H, W) uint8, label map (H, W) uint8).

    ids: N unique image names. note: remark printed beside a result, or "". left_out: see `Boxes`.
    """

    name: str
    split: str
    classes: tuple[str, ...]
    ids: Sequence[str]
    pixels: Pixels = field(repr=False)
    maps: Maps = field(repr=False)
    note: str = ""
    left_out: int = 0

    def __post_init__(self) -> None:
        if not 2 <= len(self.classes) <= MOST_CLASSES:
            raise UserError(f"{self.name} has {len(self.classes)} classes: give 2 to {MOST_CLASSES}")

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Image and label map of a row. Raises UserError if one is unreadable, or if their sizes differ."""
        image, classes = self.pixels[row], self.maps[row]
        if image.shape[-2:] != classes.shape:
            raise UserError(
                f"{self.name}: the image {self.pixels.path(row)} has {tuple(image.shape[-2:])} pixels (height, width), "
                f"its label map {classes.shape}"
            )
        if (wrong := classes[(classes >= len(self.classes)) & (classes != IGNORED)]).size:
            raise UserError(
                f"{self.name}: the label map of {self.pixels.path(row)} holds class {int(wrong[0])}, and there are "
                f"{len(self.classes)} classes, 0 to {len(self.classes) - 1}"
            )
        return image, torch.from_numpy(classes)

    def take(self, rows: np.ndarray) -> "LabelMaps":
        """A subset of the images, in the order given."""
        rows = np.asarray(rows)
        ids = [self.ids[row] for row in rows]
        return replace(self, ids=ids, pixels=self.pixels.take(rows), maps=self.maps.take(rows))

    @cached_property
    def digest(self) -> str:
        """sha256 (hex) of the images' and the maps' identity."""
        digest = hashlib.sha256(repr((self.split, self.classes, list(self.ids))).encode())
        self.pixels.update_digest(digest)
        self.maps.update_digest(digest)
        return digest.hexdigest()


def of_boxes(boxes: Boxes) -> LabelMaps:
    """The pixels' classes by the masks of a detection set: background is class 0.

    Where masks overlap the smaller object is in front; pixels of crowds (COCO) are ignored.
    Raises UserError for a set without masks.
    """
    if not boxes.has_masks:
        raise UserError(f"{boxes.name} has boxes and no masks, which {boxes.split} pixels' classes are made of")
    classes = ("background", *boxes.classes)
    about = (boxes.pixels, _Painted(boxes), boxes.note, boxes.left_out)
    return LabelMaps(boxes.name, boxes.split, classes, boxes.ids, *about)


@dataclass(frozen=True, eq=False)
class _Painted:
    """`Maps` drawn from masks, the largest object first."""

    boxes: Boxes

    def __getitem__(self, row: int) -> np.ndarray:
        target = self.boxes.target(row)
        classes = np.zeros(tuple(map(int, self.boxes.sizes[row])), np.uint8)
        for number in np.argsort(-target["area"].numpy(), kind="stable"):
            label = IGNORED if target["iscrowd"][number] else int(target["labels"][number])
            classes[target["masks"][number].numpy() > 0] = label
        return classes

    def take(self, rows: np.ndarray) -> "_Painted":
        return _Painted(self.boxes.take(rows))

    def update_digest(self, digest: Any) -> None:
        digest.update(self.boxes.digest.encode())
