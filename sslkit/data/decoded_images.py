"""Images decoded on demand, and the handling of unreadable ones."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
import torch

from sslkit.data.decode.large import TooLarge
from sslkit.data.decode.opacity import apply_scale, check_planes
from sslkit.data.decode.opening import Opening, Picture
from sslkit.data.decode.pixels import channels_of, identify, square, whole
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.sandbox import client
from sslkit.data.decode.scale import AUTO, BYTE, Scale
from sslkit.data.decode.survey import LOOKED_AT, scale_of, survey
from sslkit.data.decode.unreadable import UnreadableImage
from sslkit.data.image_options import VALUES
from sslkit.data.images import Identity, ImageOptions, Images
from sslkit.data.likeness import WORDS
from sslkit.data.path_list import PathList
from sslkit.data.pixel_digest import identities
from sslkit.errors import UserError
from sslkit.terminal import say

DEFAULT_SIZE = 256  # pixels: the crops of 224 are cut out of it
_COLOURED = frozenset(("RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"))  # modes; palettes may be gray


class Decode(Protocol):
    """Decodes an opened image for the place of its row in a batch. Raises UnreadableImage."""

    def __call__(self, image: Picture, *, place: int) -> None: ...


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
        self._unreadable: dict[int, int] = {}  # rows, and one behind each from which on none has been refused
        self._has_told = self._is_gray = False  # _is_gray: as far as was looked, which nobody asked for
        self._known = options.scale.or_else(identity.scale)
        self._scale, self._is_decided = self._known, False
        self._first = self._first_readable()
        if options.channels is None:
            self.channels = self._channels(self._first)
            self._is_gray = self.channels == 1
        elif options.channels not in (1, 3, 4):
            self._check_channels(options.channels)
        self._survey = survey(self)
        self._survey.warn(self.name)

    @property
    def scale(self) -> Scale:
        """Decided when it is first asked for, or by `share_scale`, in the process that opens the images."""
        if not self._is_decided:
            self.scale = scale_of(self, self._survey, self._known)
        return self._scale

    @scale.setter
    def scale(self, found: Scale) -> None:
        self._scale, self._is_decided = found, True

    def share_scale(self, opened: Callable[[], Images]) -> None:
        """Decide the scale: that of other images, which are opened if these need one; what is not found there anew."""
        settled = self._known
        is_asked = (self._survey.deep and settled.range is None) or (self._survey.opaque and settled.opacity is None)
        if is_asked and (shared := settled.or_else(opened().scale)) != settled:
            self.scale = shared.or_else(scale_of(self, self._survey, shared))

    @property
    def from_sample(self) -> Collection[str]:
        settled, decided, whole = self._known.words(), self.scale.words(), self.options.range == AUTO
        names = [name for name in VALUES if name in decided.keys() - settled.keys() and not (whole and name == "range")]
        return [*names, "channels"] if self.options.channels is None else names

    def __getstate__(self) -> dict[str, Any]:
        _ = self.scale  # before another process decides it again
        return {**self.__dict__, "_decoders": client.address()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        client.adopt(state.pop("_decoders"))
        self.__dict__.update(state)

    @property
    def opening(self) -> Opening:
        return Opening(self.options.channels, self.options.max_pixels)

    def names(self) -> PathList | None:
        """The names of all rows, whose endings tell the kind of file; None if there are none."""
        return None

    def stamps_digest(self) -> str | None:
        """A text that changes whenever a file does, without reading one; None where that is not known."""
        return None

    def path(self, row: int) -> str:
        """The name of a row in messages."""
        raise NotImplementedError

    def image_name(self, row: int) -> str:
        """The name of a row within its split, the same on every machine."""
        raise NotImplementedError

    def part(self, rows: np.ndarray, split: str) -> Self:
        """The images of some rows, see `Images.part`; which of them cannot be read is found anew."""
        other = super().part(rows, split)
        other._unreadable = {}
        return other

    def _open(self, row: int) -> Picture:
        """The row's image, opened by `opening` but not decoded. Raises UnreadableImage."""
        raise NotImplementedError

    def open_row(self, row: int) -> Picture:
        """The row's image, opened, with what was decided of the whole set. Raises UnreadableImage."""
        image = apply_scale(self._open(row), self._scale)
        try:
            if self._scale.opacity is False:
                check_planes(image, self.channels)
        except UnreadableImage:
            image.close()
            raise
        return image

    def _first_readable(self) -> int:
        """Decode the first image that can be read, and return its row."""

        def decode(image: Picture, *, place: int) -> None:
            options = self.options
            channels = options.channels if options.channels in (1, 3, 4) else channels_of(image)
            square(image, self.image_size, channels, self.fit, options.interpolation, BYTE, resize=options.resize)

        return int(self.read_rows([0], decode)[0][0])

    def _channels(self, first: int) -> int:
        """3 if the first readable image, or any of 32 evenly spaced ones, is coloured, else 1.

        If the first has another number of planes, that.
        """
        for row in dict.fromkeys((first, *np.linspace(0, len(self) - 1, LOOKED_AT, dtype=int).tolist())):
            try:
                with self.open_row(row) as image:
                    channels = channels_of(image)
            except UnreadableImage:  # told of when it is asked for
                continue
            if channels == 3 or (channels != 1 and row == first):
                return channels
        return 1

    def _check_channels(self, channels: int) -> None:
        """Raises UserError unless the first image that can be read has so many channels, or converts to them."""
        if {channels, self.channels} <= {1, 3}:
            return
        before = self.options
        self.options = replace(before, channels=channels)
        try:
            with self.open_row(self._first) as image:
                have = channels_of(image)
                fits = image.becomes(channels) if isinstance(image, Planes) else channels in (1, 3, 4)
        finally:
            self.options = before
        if not fits:
            raise UserError(
                f"data.channels={channels}, but {self.path(self._first)} has {have}: image files give 1 (gray), 3 (RGB)"
                ", 4 (RGBA), or the number of channels of a TIFF"
            )

    def __getitems__(self, rows: list[int]) -> dict[str, Any]:
        images = np.empty((len(rows), self.channels, self.image_size, self.image_size), dtype=np.uint8)
        aspect = np.empty(len(rows), dtype=np.float32)
        digests, hashes = (
            np.empty((len(rows) if self.identifies else 0, *width), np.int64) for width in ((), (WORDS,))
        )
        scale, options = self.range, self.options

        def decode(image: Picture, *, place: int) -> None:
            if self.identifies:  # first, while the image can still be decoded at its full size
                digests[place], hashes[place] = identify(image)
            images[place], aspect[place] = square(
                image, self.image_size, self.channels, self.fit, options.interpolation, scale, resize=options.resize
            )

        index, unread = self.read_rows(rows, decode)
        more = identities(digests, hashes) if self.identifies else {}
        return self.batch(torch.from_numpy(images), index, torch.from_numpy(aspect), unread, **more)

    def read_whole(self, rows: list[int]) -> dict[str, Any]:
        pictures: dict[int, torch.Tensor] = {}

        def decode(image: Picture, *, place: int) -> None:
            pictures[place] = torch.from_numpy(whole(image, self.channels, self.range))

        index, unread = self.read_rows(rows, decode)
        return {
            "images": [pictures[number] for number in range(len(rows))],
            "index": torch.from_numpy(index),
            "bad": unread,
        }

    def read_rows(self, rows: Sequence[int], decode: Decode) -> tuple[np.ndarray, list[str]]:
        """Open the image of each row, or the next readable one, and call `decode(image, place=its place in rows)`.

        Returns the rows that were read, (n,) int64, and the paths of requested images that could not be read.
        """
        index = np.empty(len(rows), dtype=np.int64)
        bad: dict[int, None] = {}
        for position, row in enumerate(rows):
            index[position] = self._next_readable(int(row), partial(decode, place=position))
            if index[position] != row:
                bad[int(row)] = None
        return index, [self.path(row) for row in bad]

    def _next_readable(self, row: int, decode: Callable[[Picture], None]) -> int:
        """The first row from `row` on that can be read; after the last one comes the first."""
        reason, count = "", len(self)
        while len(self._unreadable) < count:
            candidate = self._skip_refused(row)
            try:
                with self.open_row(candidate) as image:
                    self._tell_of_colour(candidate, image)
                    decode(image)
                return candidate
            except UnreadableImage as error:
                reason = str(error)
                self._refuse(candidate, reason)
                self._tell_of_size(candidate, error)
        last = self.path((row - 1) % count)
        raise UserError(f"{self.name}: none of its {count} images can be read; the last was {last}: {reason}")

    def _skip_refused(self, row: int) -> int:
        """The first row from `row` on that has not been refused. A long run of refused ones is passed in few steps."""
        passed = []
        while row in self._unreadable:
            passed.append(row)
            row = self._unreadable[row]
        for before in passed:
            self._unreadable[before] = row
        return row

    def _refuse(self, row: int, reason: str) -> None:
        if self.options.on_error == "raise":
            raise UserError(f"cannot read {self.path(row)}: {reason} (on_error=skip leaves such images out)")
        self._unreadable[row] = (row + 1) % len(self)

    def _tell_of_size(self, row: int, error: UnreadableImage) -> None:
        """Warn of the first image that is left out for its size alone, in each process, unless opening has done it."""
        if isinstance(error, TooLarge) and not self._has_told:
            self._has_told = True
            say.warn(f"{self.name}: left out {self.path(row)}: {error}", stacklevel=2)

    def _tell_of_colour(self, row: int, image: Picture) -> None:
        """Warn of the first coloured image of those that are read as gray since none that was looked at had colours."""
        if self._is_gray and self.channels == 1 and getattr(image, "mode", "") in _COLOURED:
            self._is_gray = False
            say.warn(
                f"{self.name}: {self.path(row)} is coloured and is read as gray, since all of the {LOOKED_AT} images "
                "that were looked at are gray: data.channels=3 keeps the colours",
                stacklevel=2,
            )
