"""Images decoded on demand, and the handling of unreadable ones."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
import torch
from PIL import Image

from sslkit.data.decode import UnreadableImage, channels_of, square
from sslkit.data.images import Identity, ImageOptions, Images
from sslkit.errors import UserError

DEFAULT_SIZE = 256
LOOKED_AT = 32  # images, for the number of channels


class Decode(Protocol):
    """Decodes an opened image for the place of its row in a batch. Raises UnreadableImage."""

    def __call__(self, image: Image.Image, *, place: int) -> None: ...


class DecodedImages(Images):
    """Subclasses implement `__len__`, `path` and `_open`, and those that evaluation reads `image_name` and `_take`.

    image_size defaults to 256, channels to those of the first readable image: 1 if it is gray, otherwise 3.
    With on_error="skip" the next readable image replaces an unreadable one; each process remembers its unreadable
    rows.
    Raises UserError when no image can be read, or with on_error="raise" when the first one cannot.
    """

    def __init__(self, identity: Identity, options: ImageOptions) -> None:
        super().__init__(
            identity,
            options,
            channels=options.channels or 1,
            image_size=options.image_size or DEFAULT_SIZE,
            native_size=None,
        )
        self._check_channels(self.channels)
        self._unreadable: set[int] = set()
        first = int(self.__getitems__([0])["index"][0])
        if options.channels is None:
            self.channels = self._channels(first)

    def path(self, row: int) -> str:
        """The name of a row in messages."""
        raise NotImplementedError

    def image_name(self, row: int) -> str:
        """The name of a row within its split, the same on every machine."""
        raise NotImplementedError

    def part(self, rows: np.ndarray, split: str) -> Self:
        """The images of some rows (n,) int64, in their order, as a split of this name; labels keep their numbers."""
        other = self._copied()
        other.source, other.splits, other.split = None, (split,), split  # the source itself has no such split
        other.options = replace(self.options, split=split)
        other.labels = None if self.labels is None else self.labels[rows]
        other.multi_labels = None if self.multi_labels is None else self.multi_labels[rows]
        other._unreadable = set()
        other._take(rows)
        return other

    def _take(self, rows: np.ndarray) -> None:
        """Keep these rows of what the subclass holds."""
        raise NotImplementedError

    def _open(self, row: int) -> Image.Image:
        """The row's image, opened but not decoded. Raises UnreadableImage."""
        raise NotImplementedError

    def _channels(self, first: int) -> int:
        """3 if the first readable image, or any of 32 evenly spaced ones, is coloured, else 1."""
        for row in dict.fromkeys((first, *np.linspace(0, len(self) - 1, LOOKED_AT, dtype=int).tolist())):
            try:
                with self._open(row) as image:
                    if channels_of(image) == 3:
                        return 3
            except UnreadableImage:  # told of when it is asked for
                continue
        return 1

    def _check_channels(self, channels: int) -> None:
        if channels not in (1, 3, 4):
            raise UserError(f"data.channels={channels}: image files give 1 (gray), 3 (RGB) or 4 (RGBA)")

    def __getitems__(self, rows: list[int]) -> dict[str, Any]:
        images = np.empty((len(rows), self.channels, self.image_size, self.image_size), dtype=np.uint8)
        aspect = np.empty(len(rows), dtype=np.float32)

        def decode(image: Image.Image, *, place: int) -> None:
            images[place], aspect[place] = square(
                image, self.image_size, self.channels, self.fit, self.options.interpolation
            )

        index, unread = self.read(rows, decode)
        return self.batch(torch.from_numpy(images), index, torch.from_numpy(aspect), unread)

    def read(self, rows: Sequence[int], decode: Decode) -> tuple[np.ndarray, list[str]]:
        """Open the image of each row, or the next readable one, and call `decode(image, place=its place in rows)`.

        Returns the rows that were read, (n,) int64, and the paths of requested images that could not be read.
        """
        index = np.empty(len(rows), dtype=np.int64)
        bad: dict[int, None] = {}
        for place, row in enumerate(rows):
            index[place] = self._next_readable(int(row), bad, partial(decode, place=place))
        return index, [self.path(row) for row in bad]

    def _next_readable(self, row: int, bad: dict[int, None], decode: Callable[[Image.Image], None]) -> int:
        reason = ""
        for candidate in (*range(row, len(self)), *range(row)):
            if candidate not in self._unreadable:
                try:
                    with self._open(candidate) as image:
                        decode(image)
                    return candidate
                except UnreadableImage as error:
                    reason = str(error)
                    self._refuse(candidate, reason)
            bad[candidate] = None
        last = self.path((row - 1) % len(self))
        raise UserError(f"{self.name}: none of its {len(self)} images can be read; the last was {last}: {reason}")

    def _refuse(self, row: int, reason: str) -> None:
        if self.options.on_error == "raise":
            raise UserError(f"cannot read {self.path(row)}: {reason} (data.on_error=skip leaves such images out)")
        self._unreadable.add(row)
