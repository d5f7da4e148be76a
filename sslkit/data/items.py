"""The kind of a network's inputs and of a data set's rows: images, or items with further axes, such as clips."""

import math
from dataclasses import dataclass

# pictures of items with further axes that are read where one image would be: a round number, as neighbouring ones are
# alike
PER_IMAGE = 4


@dataclass(frozen=True)
class Item:
    """One input of a network: (C, *axes, S, S), C channels of squares of S pixels.

    axes: the lengths between channels and pixels; () of an image, (T,) of a clip of T frames.
    name: of one. about: of several, with their lengths. rows: what a data set of them has.
    evaluated_by: the recipe that evaluates networks of it; "": evaluate.py.
    of_row: R, how many a row of a data set has: a batch of n rows is (n, R, C, *axes, S, S), of images (n, C, S, S).
    """

    axes: tuple[int, ...] = ()
    name: str = "image"
    about: str = "images"
    rows: str = "images"
    of_row: int = 1
    evaluated_by: str = ""

    @property
    def frames(self) -> int | None:
        """T of clips, as cards, exports and `sslkit.method` name it; None for images."""
        return next(iter(self.axes), None)

    def shape(self, channels: int, size: int) -> tuple[int, ...]:
        """Return the shape of one. channels: C. size: S."""
        return (channels, *self.axes, size, size)

    def batch_shape(self, rows: int, channels: int, size: int) -> tuple[int, ...]:
        """Return the shape of a batch of rows. channels: C. size: S."""
        return (rows, *((self.of_row,) if self.axes else ()), *self.shape(channels, size))

    def rows_at_once(self, images: int) -> int:
        """Return how many rows are read together where so many images would be."""
        return max(1, PER_IMAGE * images // (math.prod(self.axes) * self.of_row)) if self.axes else images

    def pictures(self, most: int) -> int:
        """Return how many pictures (C, S, S) a row has, at most so many along each further axis."""
        return math.prod(min(length, most) for length in self.axes) * self.of_row


IMAGE = Item()


def item_of(frames: int | None, clips: int = 1) -> Item:
    """Return the kind that a card, an export and a run name by the frames T of a clip; None: images.

    clips: of a row.
    """
    if frames is None:
        return IMAGE
    return Item((frames,), "clip", f"clips of {frames} frames", "videos", clips, "action_eval.py")
