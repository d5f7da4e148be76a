"""A data set of random crops that are taken from image files by the process that decodes them."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils.data import Dataset

from sslkit.data.decode.opening import Picture
from sslkit.data.decode.pixels import Region, regions, upright_size
from sslkit.data.decoded_images import DecodedImages
from sslkit.data.views.crops import Crops, draw_boxes
from sslkit.data.views.recipe import ViewRecipe


class CroppedImages(Dataset):
    """The images of a source as `Crops` for the views of a recipe; each file is decoded once.

    images: an opened source of files; its options (channels, interpolation, on_error) apply.
    size: side in pixels of the views without their own size.
    whole: give the whole images as well, as the squares of `images`.
    """

    decodes: ClassVar[bool] = True

    def __init__(self, images: DecodedImages, recipe: ViewRecipe, size: int, *, whole: bool = False) -> None:
        self.images = images
        self.views = recipe.each()
        self.sides = [view.size or size for view in self.views]
        self.whole = whole

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, rows: Sequence[int]) -> dict[str, Any]:
        """A batch as of `Images.__getitems__`, with `Crops` as its images.

        The boxes depend on `rows.seed` and `rows.epoch` (of `loader.EpochRows`; 0 in a plain list) and on the requested
        row, also where another image is read because that one is damaged. aspect: that of the whole images.
        """
        seed, epoch = getattr(rows, "seed", 0), getattr(rows, "epoch", 0)
        _ = self.images.scale  # decided before an image is opened
        channels, count = self.images.channels, len(rows)
        boxes, aspect = np.empty((count, len(self.views), 4), np.float32), np.empty(count, np.float32)
        parts = [np.empty((count, len(list(run)), channels, side, side), np.uint8) for side, run in groupby(self.sides)]
        whole = np.empty((count, channels, *[self.images.image_size] * 2), np.uint8) if self.whole else None
        squares = [pixels[:, number] for pixels in parts for number in range(pixels.shape[1])]
        squares += [] if whole is None else [whole]

        def decode(image: Picture, *, place: int) -> None:
            height, width = upright_size(image)
            drawn = draw_boxes(self.views, seed, epoch, int(rows[place]), height, width).numpy()
            boxes[place], aspect[place] = drawn / (height, width, height, width), width / height
            for square, pixels in zip(squares, self._cut(image, drawn, height, width), strict=True):
                square[place] = pixels

        index, unread = self.images.read_rows(rows, decode)
        crops = Crops(
            tuple(map(torch.from_numpy, parts)),
            torch.from_numpy(boxes).transpose(0, 1),
            None if whole is None else torch.from_numpy(whole),
        )
        return self.images.batch(crops, index, torch.from_numpy(aspect), unread)

    def _cut(self, image: Picture, boxes: np.ndarray, height: int, width: int) -> list[np.ndarray]:
        """The pixels of each box (V, 4), and of the whole image if it is wanted."""
        wanted = [Region(*map(int, box), side) for box, side in zip(boxes, self.sides, strict=True)]
        wanted += [Region(0, 0, height, width, self.images.image_size)] * self.whole
        return regions(image, wanted, self.images.channels, self.images.options.interpolation, self.images.range)
