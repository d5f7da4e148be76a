"""What a detector says of images: boxes with classes and scores, to be shown and written; of a Mask R-CNN masks too."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sslkit.errors import UserError
from sslkit.models.answers import Answers, in_digits, table_of
from sslkit.terminal.say import and_so_on, counted

BOX = ("x0", "y0", "x1", "y1")
SURE = 0.5  # score from which a box is drawn: a convention
EDGE = 2  # pixels around a box, in which torchvision's mask may still be
Mask = tuple[int, int, np.ndarray]  # top, left, (h, w) bool


@dataclass(frozen=True, eq=False)
class Detections(Answers):
    """The boxes of N images, which `Model.predict` of a detector returns.

    ids: the path of each image, or its number where it is in no file. classes: the names of the K classes.
    sizes: (N, 2) int64, height and width in pixels of each image, upright by its EXIF orientation.
    image: (M,) int64, the image of each box, from 0. boxes: (M, 4) float32, x0, y0, x1, y1 in pixels of that image,
    from its upper left corner. labels: (M,) int64 of `classes`. scores: (M,) float32, the best of an image first.
    masks: of a Mask R-CNN, for each box; see `mask`. unreadable: paths of images that were left out.
    files: of each image the picture of its masks, where these are written.
    print() shows the first; `write` writes all.
    """

    ids: Sequence[str]
    classes: tuple[str, ...]
    sizes: np.ndarray
    image: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray
    scores: np.ndarray
    masks: Sequence[Mask] | None = None
    unreadable: tuple[str, ...] = ()
    files: Sequence[str] | None = None

    @classmethod
    def of_images(
        cls,
        ids: Sequence[str],
        classes: tuple[str, ...],
        each: Sequence[dict[str, np.ndarray]],
        unreadable: Sequence[str],
        masks: bool,
    ) -> "Detections":
        """Of each image its `size` (2,), and what `detector.detect` says of it, with or without masks."""
        numbers = np.repeat(np.arange(len(each)), [len(image["scores"]) for image in each])
        joined = {name: _join([image[name] for image in each], *like) for name, like in _LIKE.items()}
        pairs = (pair for image in each for pair in zip(image["masks"], image["boxes"], strict=True)) if masks else ()
        sizes = np.array([image["size"] for image in each], np.int64).reshape(-1, 2)
        boxes, labels, scores = joined["boxes"], joined["labels"] - 1, joined["scores"]
        cut = [_crop(*pair) for pair in pairs] if masks else None
        return cls(ids, classes, sizes, numbers, boxes, labels, scores, cut, tuple(unreadable))

    @classmethod
    def join(cls, parts: Iterable["Detections"]) -> "Detections":
        """The detections of all parts; there is at least one."""
        parts = list(parts)
        starts = np.cumsum([0, *map(len, parts)])
        arrays = {name: np.concatenate([getattr(batch, name) for batch in parts]) for name in ("sizes", *_LIKE)}
        image = np.concatenate([batch.image + start for batch, start in zip(parts, starts, strict=False)])
        ids, bad = ([name for batch in parts for name in getattr(batch, names)] for names in ("ids", "unreadable"))
        masks = None if parts[0].masks is None else [mask for batch in parts for mask in batch.masks]
        return replace(parts[0], **arrays, ids=ids, image=image, masks=masks, unreadable=tuple(bad))

    def __str__(self) -> str:
        if not len(self.boxes):
            return f"no box in {counted(len(self), 'image')}"
        return table_of(self, len(self.boxes), "box", None)

    def mask(self, box: int) -> np.ndarray:
        """(H, W) bool: the pixels of the object of a box. Raises UserError for a detector without masks."""
        if self.masks is None:
            raise UserError("this detector tells boxes and no masks: train one with task=masks")
        top, left, inside = self.masks[box]
        whole = np.zeros(self.sizes[self.image[box]], bool)
        whole[top : top + inside.shape[0], left : left + inside.shape[1]] = inside
        return whole

    def columns(self) -> list[str]:
        mask, number = ([], []) if self.files is None else (["mask"], ["object"])
        return ["path", "class", *mask, "score", *BOX, *number]

    @property
    def texts(self) -> int:
        return 2 if self.files is None else 3

    def lines(self) -> Iterator[list[str | float]]:
        """The cells of each box's line in the file. object: its value in the picture of the masks of its image."""
        values = np.concatenate([self.scores[:, None], self.boxes], 1)
        for image, label, row, number in zip(self.image, self.labels, values, self._numbers(), strict=True):
            names = [self.ids[image], self.classes[label]]
            more = ([], []) if self.files is None else ([self.files[image]], [float(number)])
            yield [*names, *more[0], *in_digits(row), *more[1]]

    def _numbers(self) -> np.ndarray:
        """(M,) the number of each box in its image, from 1."""
        return np.arange(len(self.image)) - np.searchsorted(self.image, self.image) + 1

    @property
    def pictures(self) -> list[np.ndarray] | None:
        """Of each image (H, W) uint8, the number of the best object of each pixel, 0 for none; None without masks."""
        if self.masks is None:
            return None
        pictures, numbers = [np.zeros(size, np.uint8) for size in self.sizes], self._numbers()
        for box in np.flatnonzero(numbers <= np.iinfo(np.uint8).max)[::-1]:  # the best of an image last, on the others
            pictures[self.image[box]][self.mask(box)] = numbers[box]
        return pictures

    @property
    def sure(self) -> np.ndarray:
        """(N,) the highest score in each image, 0 where there is no box."""
        best = np.zeros(len(self), np.float32)
        np.maximum.at(best, self.image, self.scores)
        return best

    @property
    def counts(self) -> Counter:
        """Boxes by class, and under "" images without one."""
        names = Counter(self.classes[label] for label in self.labels)
        return names + Counter({"": len(self) - len(np.unique(self.image))})

    @property
    def captions(self) -> list[str]:
        """A few words on each image."""
        many = np.bincount(self.image, minlength=len(self))
        return [counted(number, "box") for number in many.tolist()]

    def overlay(self, image: int) -> "Outlined":
        """What is drawn on an image: the boxes of a score of `SURE` or more, else the best."""
        rows = np.flatnonzero(self.image == image)
        drawn = rows[self.scores[rows] >= SURE]
        drawn = drawn if len(drawn) else rows[:1]
        shares = self.boxes[drawn] / np.tile(self.sizes[image][::-1], 2)
        return Outlined(shares, self.labels[drawn], self.classes)

    @staticmethod
    def tell(counts: Counter, sure: float, images: int, most: int) -> list[str]:
        """Lines on what was counted. sure: mean of the highest scores. most: classes that are named."""
        empty = counts[""]
        boxes = Counter({name: count for name, count in counts.items() if name})
        if not boxes:
            return [f"boxes     none in any of {counted(images, 'image')}"]
        each = and_so_on([f"{name} {count:,}" for name, count in boxes.most_common()], most)
        none = f"; {counted(empty, 'image')} without any" if empty else ""
        line = f"boxes     {boxes.total():,}: {each}{none}"
        return [line, f"sure      mean of the highest score of an image {sure:.3f}"]


@dataclass(frozen=True, eq=False)
class Outlined:
    """Boxes on a picture. boxes: (n, 4) x0, y0, x1, y1 as shares of its width and height. labels: (n,) of classes."""

    boxes: np.ndarray
    labels: np.ndarray
    classes: Sequence[str]

    def draw(self, axis: Any, shape: Sequence[int]) -> None:
        """Draw on an axis with a picture of this shape."""
        from matplotlib.patches import Rectangle

        from sslkit.numerics.figures import class_styles

        styles, sides = class_styles(self.classes), np.tile(shape[1::-1], 2)
        for label, (x0, y0, x1, y1) in zip(self.labels, self.boxes * sides, strict=True):
            corner, colour, name = (x0 - 0.5, y0 - 0.5), styles[label][0], self.classes[label]  # pixels are around 0
            axis.add_patch(Rectangle(corner, x1 - x0, y1 - y0, fill=False, linewidth=1.2, edgecolor=colour))
            axis.text(*corner, name, fontsize=5, color=colour, va="bottom", parse_math=False, clip_on=True)


_LIKE = {"boxes": (np.float32, 4), "labels": (np.int64,), "scores": (np.float32,)}


def _join(arrays: Sequence[np.ndarray], kind: type, *width: int) -> np.ndarray:
    return np.concatenate([np.zeros((0, *width), kind), *arrays]).astype(kind)


def _crop(mask: np.ndarray, box: np.ndarray) -> Mask:
    """Keep the part of a mask (H, W) bool around its box, which is all of it."""
    left, top = np.maximum(np.floor(box[:2]).astype(int) - EDGE, 0)
    right, bottom = np.ceil(box[2:]).astype(int) + EDGE
    return int(top), int(left), mask[top:bottom, left:right].copy()
