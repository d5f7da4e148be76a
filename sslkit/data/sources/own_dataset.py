"""A `torch.utils.data.Dataset` of a Python program as a source of images."""

import hashlib
import os
import threading
import uuid
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset
from tqdm import tqdm

from sslkit.data.arrays import as_numpy, to_nchw
from sslkit.data.decode import scale
from sslkit.data.decode.opening import Picture
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.scale import finite
from sslkit.data.decode.unreadable import UnreadableImage, unreadable
from sslkit.data.decoded_images import DecodedImages
from sslkit.data.file_contents import bar_is_off
from sslkit.data.images import Identity, ImageOptions
from sslkit.data.sources.own_labels import facts_of_dataset, filter_dataset
from sslkit.errors import UserError
from sslkit.runtime.jobs import free_memory
from sslkit.terminal import say

PREFIX = "dataset:"  # of the name in settings and cards, which nobody else can open
_BYTES = 16  # of a sha256: no two rows of a data set agree by chance
_LOOKED_AT = 8  # rows that are read twice: a round number; a set that draws anew differs in the first
_BYTES_OF_A_ROW = 24  # a row's number, its place in the order of an epoch, and its label
_KINDS = "a PIL image, an array, a tensor, or a pair of one of these and a label"


class OwnImages(DecodedImages):
    """The items of a data set, each an image or (image, label), read when they are asked for.

    varies: reading a row twice gives other pixels; such images have no identity that a later run could find again.
    """

    def __init__(self, items: "_Items", identity: Identity, options: ImageOptions) -> None:
        self._items = items
        self._rows = np.arange(len(items))
        super().__init__(identity, options)

    @property
    def varies(self) -> bool:
        return self._items.varies

    def __len__(self) -> int:
        return len(self._rows)

    def path(self, row: int) -> str:
        return f"{self.name}[{self._rows[row]}]"

    def image_name(self, row: int) -> str:
        """The number of the row in the data set."""
        return str(self._rows[row])

    def _take(self, rows: np.ndarray) -> None:
        self._rows = self._rows[rows]

    def content(self, row: int) -> bytes:
        """A hash of the row's pixels, which stands for them in comparisons."""
        return self._items.content(int(self._rows[row]))

    def content_size(self, row: int) -> int:
        """Bytes of `content`."""
        return _BYTES

    def _open(self, row: int) -> Picture:
        return self._items.picture(int(self._rows[row]), self.options.channels)

    def _update_listing(self, digest: Any) -> None:
        digest.update(f"{len(self)} {self._items.nonce}".encode())
        digest.update(self._rows.tobytes())

    def _update_digest(self, digest: Any) -> None:
        """The pixels of all rows, each read once for it."""
        self._update_listing(digest)
        if not self.varies:
            digest.update(self._items.contents()[self._rows].tobytes())


def open_dataset(dataset: Dataset, options: ImageOptions) -> OwnImages:
    """The images of a map-style data set, its only split "train".

    An item is a PIL image, an array (H, W), (H, W, C) or (C, H, W), or a tensor of such a shape; of a tuple or a list
    the first part is the image and the second the label. Values of more than 8 bits have one range, as those of files.
    Labels and groups: attributes of the data set that `columns` name, a value for each item, as a filter does; or
    `dataset.targets` or `dataset.labels`, through Subset and ConcatDataset, too, as `dataset.target_transform`
    changes them; without these, or where items have other labels, all items are read once. `dataset.classes` are their
    names, if it has enough.
    Raises UserError for a data set without length or items, and for items that are no images.
    """
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise UserError(
            f"{type(dataset).__name__} has no length and no rows to ask for, so that they can neither be shuffled as a "
            "whole nor resumed: give a map-style data set, with __len__ and __getitem__"
        )
    name = type(dataset).__name__
    if not len(dataset):
        raise UserError(f"{name} has no items")
    _check_length(len(dataset), name)
    dataset = filter_dataset(dataset, options.columns, name)
    items = _Items(dataset, name)
    about = facts_of_dataset(dataset, items.item, name, options.columns)
    images = OwnImages(items, Identity(name, None, ("train",), **about), options)
    if items.varies:
        say.warn(
            f"{name}: reading a row twice gives other pixels, as a random transform does: give the plain images, since "
            "views are drawn from them; a run on these cannot be resumed, and nothing about them is kept for later",
            stacklevel=3,
        )
    return images


def _check_length(length: int, name: str) -> None:
    """Raises UserError for more items than the memory has room to number: some data sets say that they have no end."""
    if _BYTES_OF_A_ROW * length > (free := free_memory()):
        problem = (
            f"{name} says that it has {length:,} items: their numbers alone need more than the {free:,} free bytes"
        )
        raise UserError(f"{problem} of memory; give one whose __len__ is the number of its items, such as a Subset")


class _Items:
    """The items of a data set: one thread of a process reads it at a time. Copies of images share what was found.

    nonce: "" for items that are the same whenever they are read.
    """

    def __init__(self, dataset: Any, name: str) -> None:
        self.dataset, self.name = dataset, name
        self._lock, self._owner = threading.Lock(), os.getpid()
        self._contents: np.ndarray | None = None
        some = dict.fromkeys(np.linspace(0, len(self) - 1, _LOOKED_AT, dtype=int).tolist())
        first = [self._of_row(row) for row in some]
        again = [self._of_row(row) for row in some]
        self.varies = any(_content(before) != _content(other) for before, other in zip(first, again, strict=True))
        self.nonce = uuid.uuid4().hex if self.varies else ""

    def __len__(self) -> int:
        return len(self.dataset)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_lock", "_owner")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock(), _owner=os.getpid())

    def item(self, row: int) -> Any:
        """Raises UnreadableImage for whatever the data set raises."""
        if self._owner != os.getpid():  # in a worker, forked while another thread may have held the lock
            self._lock, self._owner = threading.Lock(), os.getpid()
        with self._lock:
            try:
                return self.dataset[row]
            except Exception as error:
                raise unreadable(error) from error

    def picture(self, row: int, channels: int | None) -> Picture:
        """channels: that are wanted, as far as an array of four can lack its last one."""
        image = _image_of(self.item(row))
        return image if isinstance(image, Image.Image) else _picture(image, channels)

    def content(self, row: int) -> bytes:
        """`_BYTES` bytes of the sha256 of a row's pixels; zeros if it cannot be read."""
        return _content(self._of_row(row)) if self._contents is None else self._contents[row].tobytes()

    def contents(self) -> np.ndarray:
        """(N,) the `content` of all rows."""
        if self._contents is None:
            rows = tqdm(range(len(self)), desc="content", unit="image", delay=2, disable=bar_is_off())
            self._contents = np.array([self.content(row) for row in rows], dtype=f"V{_BYTES}")
        return self._contents

    def _of_row(self, row: int) -> Any:
        """The image of a row, None if it cannot be read."""
        try:
            return _image_of(self.item(row))
        except UnreadableImage:
            return None


def _image_of(item: Any) -> Any:
    """The image in an item: a picture of its own, which may be closed and changed, or an array."""
    image = item[0] if isinstance(item, (tuple, list)) and item else item
    if isinstance(image, Image.Image):
        return image.copy()
    if isinstance(image, (torch.Tensor, np.ndarray)):
        return as_numpy(image)
    raise UnreadableImage(f"{type(image).__name__} instead of an image: an item is {_KINDS}")


class _Array(Planes):
    """An item that is an array (C, H, W): gray, RGB, or any other number of channels. channels: that are wanted."""

    is_unmarked = True

    def __init__(self, planes: np.ndarray, channels: int | None) -> None:
        count, height, width = planes.shape
        colours = 3 if count == 4 and channels in (1, 3) else count
        super().__init__((width, height), count, colours=colours, has_alpha=False, is_deep=scale.is_deep(planes.dtype))
        self.planes = planes

    def _read_planes(self) -> np.ndarray:
        return self.planes


def _picture(pixels: np.ndarray, channels: int | None) -> Planes:
    """Raises UnreadableImage for an array of another shape, or of what are no numbers."""
    try:
        return _Array(finite(to_nchw(pixels[None], "an item")[0]), channels)
    except UserError as error:
        raise UnreadableImage(str(error)) from error


def _content(image: Any) -> bytes:
    if image is None:
        return bytes(_BYTES)
    pixels = np.asarray(image)
    about = repr((getattr(image, "mode", ""), pixels.shape, str(pixels.dtype))).encode()
    return hashlib.sha256(about + np.ascontiguousarray(pixels).tobytes()).digest()[:_BYTES]
