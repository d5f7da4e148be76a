"""The contract of a detection data set: images with the boxes, and optionally the masks, of their objects.

Boxes are xyxy in pixels from 0, half open: an object that fills columns 0 to 9 has x from 0 to 10, as in COCO and in
torchvision's detectors. Labels start at 1; 0 is the background.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import Dataset

from evaluation.datasets._copies import same_of_shape
from sslkit.data.pixel_digest import digest_of_pixels
from sslkit.errors import UserError

Target = dict[str, Any]
EMPTY = ("skip", "keep")  # what is done with training images without an object, the usual first
LEAST_SIDE = 0.01  # pixels: a smaller side may round to 0 in float32 when a box is mirrored or scaled


class Pixels(Protocol):
    """The source of the N images of a data set. Must be picklable, since workers may be spawned."""

    def __getitem__(self, row: int) -> torch.Tensor:
        """(3, H, W) uint8. Raises UserError for an unreadable image, or one not of its annotated size."""

    def path(self, row: int) -> str:
        """The name of an image in messages."""

    def take(self, rows: np.ndarray) -> "Pixels":
        """A subset of the images, in the order given."""

    def update_digest(self, digest: Any) -> None:
        """Feed the identity of the images to a hashlib object."""


class Outlines(Protocol):
    """The masks of the M objects of a data set. Must be picklable."""

    def masks(self, objects: np.ndarray, height: int, width: int) -> np.ndarray:
        """The masks of n objects of one image: (n, height, width) uint8 of 0 and 1."""

    def take(self, objects: np.ndarray) -> "Outlines":
        """A subset of the objects, in the order given."""

    def update_digest(self, digest: Any) -> None:
        """Feed the masks to a hashlib object."""


@dataclass(frozen=True, eq=False)
class Instances:
    """The M objects of N images, grouped by image.

    ends: (N + 1,) int64; the objects of image i are ends[i] to ends[i + 1].
    boxes: (M, 4) float32 xyxy. labels: (M,) int64 from 1. iscrowd: (M,) bool, the box holds several objects (COCO).
    difficult: (M,) bool, ignored by AP (VOC). area: (M,) float32, pixels of the mask, or of the box.
    """

    ends: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray
    iscrowd: np.ndarray
    difficult: np.ndarray
    area: np.ndarray

    @classmethod
    def from_counts(
        cls,
        counts: Sequence[int] | np.ndarray,
        boxes: Any,
        labels: Any,
        *,
        iscrowd: Any = None,
        difficult: Any = None,
        area: Any = None,
    ) -> "Instances":
        """Build from the number of objects of each image and their values. area: default, that of the boxes."""
        boxes = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
        many = len(boxes)
        flags = [np.zeros(many, bool) if flag is None else np.asarray(flag, bool) for flag in (iscrowd, difficult)]
        if area is None:
            area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        ends = np.concatenate([[0], np.cumsum(np.asarray(counts, np.int64))]).astype(np.int64)
        labels = np.asarray(labels, np.int64).reshape(-1)
        return cls(ends, boxes.astype(np.float32), labels, *flags, np.asarray(area, np.float32).reshape(-1))

    def __len__(self) -> int:
        """The number of images."""
        return len(self.ends) - 1

    @property
    def counts(self) -> np.ndarray:
        """(N,) int64: objects of each image."""
        return np.diff(self.ends)

    def objects(self, rows: np.ndarray) -> np.ndarray:
        """Indices of the objects of some images, in the images' order: (m,) int64."""
        parts = [np.arange(self.ends[row], self.ends[row + 1]) for row in rows]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def take(self, rows: np.ndarray) -> "Instances":
        """The objects of a subset of the images, in the order given."""
        objects = self.objects(rows)
        ends = np.concatenate([[0], np.cumsum(self.counts[rows])]).astype(np.int64)
        flat = {name: getattr(self, name)[objects] for name in ("boxes", "labels", "iscrowd", "difficult", "area")}
        return Instances(ends, **flat)


@dataclass(frozen=True, eq=False)
class Boxes(Dataset):
    """One split of a detection data set: N images with their objects.

    set[i] -> (image (3, H, W) uint8, target), see `target`.
    classes: names; index 0 is label 1. category_ids: the ids of the classes in the data set's files, in that order.
    ids: N unique image names. image_ids: (N,) int64, unique: COCO's ids, or the digits of the name.
    sizes: (N, 2) int64, height and width. outlines: None if the data set has no masks.
    voc_form: form of VOC's AP on this data set: "11point" (VOC 2007) or "area".
    whole: True if all images of the split are here, for a published set the published number; train may lack images
        without a trainable object.
    note: remark printed beside a result, or "". licence: of the images, in a line.
    left_out: images without a trainable object that train lacks.
    """

    name: str
    split: str
    classes: tuple[str, ...]
    ids: Sequence[str]
    image_ids: np.ndarray
    sizes: np.ndarray
    instances: Instances
    pixels: Pixels = field(repr=False)
    outlines: Outlines | None = field(default=None, repr=False)
    category_ids: tuple[int, ...] = ()
    voc_form: str = "area"
    whole: bool = True
    note: str = ""
    licence: str = ""
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, Target]:
        """Image and target of a row. Raises IndexError, and UserError for an unreadable image."""
        row = self._row(row)
        return self.pixels[row], self.target(row)

    def __getitems__(self, rows: list[int]) -> list[tuple[torch.Tensor, Target]]:
        return [self[row] for row in rows]

    def target(self, row: int) -> Target:
        """The target of an image, without reading its pixels.

        boxes (n, 4) float32, labels (n,) int64, iscrowd and difficult (n,) bool, area (n,) float32, image_id int,
        and, if the data set has masks, masks (n, H, W) uint8 of 0 and 1.
        """
        row = self._row(row)
        first, last = self.instances.ends[row : row + 2]
        target: Target = {
            name: torch.from_numpy(getattr(self.instances, name)[first:last].copy())
            for name in ("boxes", "labels", "iscrowd", "difficult", "area")
        }
        target["image_id"] = int(self.image_ids[row])
        if self.outlines is not None:
            height, width = map(int, self.sizes[row])
            target["masks"] = torch.from_numpy(self.outlines.masks(np.arange(first, last), height, width))
        return target

    @property
    def has_masks(self) -> bool:
        return self.outlines is not None

    def take(self, rows: Sequence[int] | np.ndarray) -> "Boxes":
        """A subset of the images. rows: (n,) int64 in the order wanted, or (N,) bool. Labels do not change."""
        rows = np.asarray(rows)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        outlines = None if self.outlines is None else self.outlines.take(self.instances.objects(rows))
        return replace(
            self,
            ids=[self.ids[row] for row in rows],
            image_ids=self.image_ids[rows],
            sizes=self.sizes[rows],
            instances=self.instances.take(rows),
            pixels=self.pixels.take(rows),
            outlines=outlines,
            whole=self.whole and np.array_equal(np.sort(rows), np.arange(len(self))),
        )

    def to_learn_from(self, empty: str) -> "Boxes":
        """The images with an object left by `for_training`; empty="keep": and those without any, as background.

        Images whose objects are all crowds, or have no area, are left out. Raises UserError if no object is left.
        """
        with_object = learnable(self.instances, self.sizes)
        if not with_object.any():
            raise UserError(f"{self.name}: its split {self.split!r} has no object to train on: all are crowds")
        mask = with_object | (self.instances.counts == 0) if empty == "keep" else with_object
        if mask.all():
            return self
        return replace(self.take(mask), whole=self.whole, left_out=self.left_out + int((~mask).sum()))

    def digest_of(self, row: int) -> int:
        """The digest of an image's pixels, see `sslkit.data.pixel_digest`. Raises UserError for an unreadable image."""
        return digest_of_pixels(self.pixels[row].permute(1, 2, 0).numpy())

    def copies_in(self, train: "Boxes") -> np.ndarray:
        """Return (N,) bool: images that are also training images. Those of a size that both splits have are read."""
        sizes = [list(map(tuple, split.sizes.tolist())) for split in (train, self)]
        return same_of_shape(*sizes, train.digest_of, self.digest_of)

    def without_masks(self) -> "Boxes":
        """The same images with boxes only."""
        return replace(self, outlines=None)

    @cached_property
    def digest(self) -> str:
        """sha256 (hex) of the images' identity and of their annotations."""
        named = (self.split, self.classes, self.category_ids, list(self.ids))
        digest = hashlib.sha256(repr(named).encode())
        for values in (self.image_ids, self.sizes, *vars(self.instances).values()):
            digest.update(np.ascontiguousarray(values).tobytes())
        if self.outlines is not None:
            self.outlines.update_digest(digest)
        self.pixels.update_digest(digest)
        return digest.hexdigest()

    def _row(self, row: int) -> int:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} images")
        return row % len(self)


def for_training(target: Target, height: int, width: int) -> Target:
    """Clip boxes to the image; drop crowds, and boxes with a clipped side below 0.01 pixels.

    Difficult objects stay. target: see `Boxes.target`; height, width: of its image.
    """
    limits = torch.tensor([width, height, width, height], dtype=target["boxes"].dtype)
    boxes = target["boxes"].clamp(min=0).minimum(limits)
    mask = ~target["iscrowd"] & (boxes[:, 2:] - boxes[:, :2] >= LEAST_SIDE).all(1)
    fields = {key: value[mask] for key, value in target.items() if key not in ("boxes", "image_id")}
    return {"boxes": boxes[mask], **fields, "image_id": target["image_id"]}


def learnable(instances: Instances, sizes: np.ndarray) -> np.ndarray:
    """(N,) bool: images with an object left by `for_training`. sizes: (N, 2) height and width."""
    limits = np.repeat(sizes[:, ::-1].astype(np.float32), instances.counts, axis=0)  # x, y of each object's image
    low = instances.boxes[:, :2].clip(0).clip(max=limits)
    high = instances.boxes[:, 2:].clip(0).clip(max=limits)
    good = ~instances.iscrowd & (high - low >= np.float32(LEAST_SIDE)).all(1)
    image = np.repeat(np.arange(len(instances)), instances.counts)
    return np.bincount(image[good], minlength=len(instances)) > 0
