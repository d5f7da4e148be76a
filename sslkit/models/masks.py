"""What a segmenter says of images: the class of each pixel, to be shown and written."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sslkit.models.answers import Answers, apart, in_digits, table_of
from sslkit.terminal.say import and_so_on

HEAD = ("path", "mask")
STRENGTH = 0.5  # of the colours over a picture
DRAWN = 256  # places of a drawn mask on its longer side, more than a drawn picture has pixels


@dataclass(frozen=True, eq=False)
class Masks(Answers):
    """The classes of all pixels of N images, which `Model.predict` of a segmenter returns.

    ids: the path of each image, or its number where it is in no file. classes: the names of the K classes.
    masks: of each image (H, W) uint8, the class of each pixel, from 0; upright by its EXIF orientation.
    sure: (N,) float32, the mean probability of the likeliest class over the places of the network's map.
    unreadable: paths of images that were left out. files: of each image the picture of its mask, where it is written.
    print() shows the first; `write` writes the shares of the classes.
    """

    ids: Sequence[str]
    classes: tuple[str, ...]
    masks: Sequence[np.ndarray]
    sure: np.ndarray
    unreadable: tuple[str, ...] = ()
    files: Sequence[str] | None = None

    @classmethod
    def join(cls, parts: Iterable["Masks"]) -> "Masks":
        """The masks of all parts; there is at least one."""
        parts = list(parts)
        ids, masks, bad = (
            [x for batch in parts for x in getattr(batch, name)] for name in ("ids", "masks", "unreadable")
        )
        return replace(
            parts[0], ids=ids, masks=masks, sure=np.concatenate([b.sure for b in parts]), unreadable=tuple(bad)
        )

    def __str__(self) -> str:
        return table_of(self, len(self), "image", None)

    @property
    def shares(self) -> np.ndarray:
        """(N, K) float64, of each class in the pixels of each image."""
        counts = [np.bincount(mask.ravel(), minlength=len(self.classes)) / mask.size for mask in self.masks]
        return np.array(counts).reshape(len(self), len(self.classes))

    def columns(self) -> list[str]:
        return [*HEAD[: self.texts], *apart(self.classes, HEAD)]

    @property
    def texts(self) -> int:
        return 1 if self.files is None else 2

    def lines(self) -> Iterator[list[str | float]]:
        for names, shares in zip(zip(self.ids, self.files or self.ids, strict=True), self.shares, strict=True):
            yield [*names[: self.texts], *in_digits(shares)]

    @property
    def pictures(self) -> Sequence[np.ndarray]:
        return self.masks

    @property
    def legend(self) -> Sequence[str]:
        return self.classes

    @property
    def counts(self) -> Counter:
        """The sum of the shares of each class."""
        return Counter(dict(zip(self.classes, self.shares.sum(0).tolist(), strict=True)))

    @property
    def captions(self) -> list[str]:
        """The largest class of each image."""
        return [self.classes[row.argmax()] for row in self.shares]

    def overlay(self, image: int) -> "Painted":
        """What is drawn on an image: its mask, with fewer places."""
        mask = self.masks[image]
        step = -(-max(mask.shape) // DRAWN)
        return Painted(mask[::step, ::step].copy(), self.classes)

    @staticmethod
    def tell(counts: Counter, sure: float, images: int, most: int) -> list[str]:
        """Lines on the classes of all images. sure: mean probability. most: classes that are named."""
        each = [f"{name} {100 * share / images:.1f} %" for name, share in counts.most_common() if share]
        return [f"pixels    {and_so_on(each, most)}", f"sure      mean probability of the predicted class {sure:.3f}"]


@dataclass(frozen=True, eq=False)
class Painted:
    """A mask on a picture. mask: (h, w) uint8, numbers of classes."""

    mask: np.ndarray
    classes: Sequence[str]

    def draw(self, axis: Any, shape: Sequence[int]) -> None:
        """Draw over a picture of this shape."""
        from sslkit.numerics.figures import palette

        extent = (-0.5, shape[1] - 0.5, shape[0] - 0.5, -0.5)  # the first pixel is around 0
        axis.imshow(palette(self.classes)[self.mask], alpha=STRENGTH, extent=extent, interpolation="nearest")
