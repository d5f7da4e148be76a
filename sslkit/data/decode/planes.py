"""Images that Pillow cannot hold: of any number of planes, each of more than 8 bits."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from sslkit.data.decode.fill import Fill, Spans, present, replace_missing, spans_of
from sslkit.data.decode.scale import BYTE, Range, finite, guess_range, to_bytes
from sslkit.data.decode.unreadable import UnreadableImage

if TYPE_CHECKING:
    from torch import Tensor


class Planes:
    """An image that is opened, and read when its values are asked for. Subclasses implement `_read_planes`.

    size: (width, height) as stored. count: of the planes.
    colours: the number of planes that are the picture, the first ones: 1 gray, 3 RGB, or all of `count`.
    has_alpha: the plane behind them is opacity, and they are 1 or 3. is_associated: they were multiplied by it.
    is_unmarked: nothing tells what the planes are, as in an array. spare: the number of planes that are not read.
    is_deep: of more than 8 bits. orientation: as of EXIF. is_inverted: the greatest value is black.
    n_frames: pages of the file, of which `seek` chooses one.
    tagged: the values of pixels that have none, by the file. fill: another one, see `scale.Scale`.
    itemsize: bytes of a value. has_places: `seek` takes where a page begins, as `pages` tells it.
    """

    orientation = 1
    is_inverted = False
    is_associated = False
    n_frames = 1
    is_unmarked = False
    spare = 0
    tagged: Spans = ()
    fill: Fill | None = None
    itemsize = 2
    _held: np.ndarray | None = None
    has_places = False

    def __init__(self, size: tuple[int, int], count: int, *, colours: int, has_alpha: bool, is_deep: bool) -> None:
        self.size, self.count, self.colours, self.has_alpha, self.is_deep = size, count, colours, has_alpha, is_deep

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, if this opened it."""

    def seek(self, page: int) -> None:
        """Choose a page. Raises EOFError for one that is not there."""
        if page:
            raise EOFError(f"there is no page {page}")

    def _read_planes(self) -> np.ndarray:
        """All planes (count, H, W) as stored."""
        raise NotImplementedError

    @property
    def spans(self) -> Spans:
        """The values of pixels that have none."""
        return spans_of(self.fill, self.tagged)

    def values(self, channels: int | None) -> list[np.ndarray]:
        """The values of each plane that is read as a channel, without opacity: (H, W), or flat if some have none.

        Raises UnreadableImage for NaN and infinity.
        """
        return [finite(present(plane, self.spans)) for plane in self._straight()[: self._count_read(channels)]]

    def _count_read(self, channels: int | None) -> int:
        """The number of planes that are read as so many channels: all of them, or the picture's."""
        return self.count if channels == self.count and not self.has_alpha else self.colours

    def opacity(self) -> np.ndarray:
        """The plane of opacity (H, W)."""
        return self._read_planes()[self.colours]

    def upright_planes(self) -> np.ndarray:
        """All planes (count, H, W) as stored, upright."""
        return _upright(self._planes(), self.orientation)

    def hold(self) -> None:
        """Read the planes of this page, and keep them for whatever is asked for next."""
        self._held = self._read_planes()

    def _planes(self) -> np.ndarray:
        return self._read_planes() if self._held is None else self._held

    def _straight(self) -> np.ndarray:
        """All planes (count, H, W), the colours without the opacity that they were multiplied by."""
        planes = self._planes()
        if not self.is_associated:
            return planes
        alpha = planes[self.colours] / opaque(planes.dtype)
        colours = np.divide(planes[: self.colours], alpha, where=alpha > 0, out=np.zeros((self.colours, *alpha.shape)))
        if planes.dtype.kind != "f":
            colours = np.rint(colours).clip(0, opaque(planes.dtype))
        return np.concatenate([colours.astype(planes.dtype), planes[self.colours :]])

    def becomes(self, channels: int) -> bool:
        """Return whether the planes can be read as so many channels."""
        is_whole = channels == self.count and not self.has_alpha
        return is_whole or channels == self.colours or (self.colours in (1, 3) and channels in (1, 3, 4))

    def pixels(self, channels: int, scale: Range | None) -> "Tensor":
        """Read (channels, H, W) uint8, upright. scale: of values of more than 8 bits.

        Raises UnreadableImage for planes that do not become so many channels, for NaN and for infinity.
        """
        from sslkit.data.arrays import convert_channels  # with torch, which processes that only decode do without

        if not self.becomes(channels):
            raise UnreadableImage(f"{self.colours} channels, which cannot become data.channels={channels}")
        planes = self._straight()
        values = planes[: self._count_read(channels)]
        if self.is_deep:
            scale = scale or guess_range(finite(present(values, self.spans)))
            values = replace_missing(values, self.spans, scale[int(self.is_inverted)])
        picture = to_bytes(finite(values), scale if self.is_deep else BYTE)
        turned = self._turn(255 - picture if self.is_inverted else picture)
        if self.has_alpha:
            turned = self._with_alpha(turned, planes[self.colours])
        return convert_channels(turned[None], channels, over_white=self.has_alpha)[0]

    def _with_alpha(self, picture: "Tensor", alpha: np.ndarray) -> "Tensor":
        """RGB and opacity (4, H, W). alpha: (H, W), up to the greatest number of its type, 1 for floats."""
        import torch

        opacity = to_bytes(alpha[None], (0.0, opaque(alpha.dtype)))
        return torch.cat([picture.expand(3, -1, -1), self._turn(opacity)])

    def _turn(self, planes: np.ndarray) -> "Tensor":
        import torch

        return torch.from_numpy(np.ascontiguousarray(_upright(planes, self.orientation)))


def opaque(dtype: np.dtype) -> float:
    return 1.0 if dtype.kind == "f" else float(np.iinfo(dtype).max)


def _upright(planes: np.ndarray, orientation: int) -> np.ndarray:
    """Planes (C, H, W) turned as EXIF's orientation says."""
    if orientation in (5, 6, 7, 8):
        planes = planes.transpose(0, 2, 1)
    rows = -1 if orientation in (3, 4, 7, 8) else 1
    columns = -1 if orientation in (2, 3, 6, 7) else 1
    return planes[:, ::rows, ::columns]
