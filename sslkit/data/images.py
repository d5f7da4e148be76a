"""The contract of every source of images: batches of uint8 squares by row, and metadata."""

import copy
import hashlib
import os
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch.utils.data import Dataset
from torch.utils.data._utils.collate import default_collate_fn_map  # the place that torch's pages name for own types

from sslkit.data.decode import fill
from sslkit.data.decode.scale import Range, Scale
from sslkit.data.identity import Identity
from sslkit.data.image_options import ImageOptions
from sslkit.data.items import IMAGE, Item
from sslkit.data.resizing import Resizing
from sslkit.data.sources.column_values import check_labels
from sslkit.data.views.sheet import Sheet
from sslkit.errors import UserError
from sslkit.options.members import nearest


def is_array(source: Any) -> bool:
    """Return whether a source is an array or a tensor."""
    return isinstance(source, (np.ndarray, torch.Tensor))


def join_paths(source: Any) -> Any:
    """A list of folders as the one text that names them, `A,B`; anything else unchanged.

    Raises UserError for an empty list, and for a name in it that has a comma.
    """
    if not isinstance(source, (list, tuple)):
        return source
    if not source:
        raise UserError("data=[] is an empty list: give the paths of folders or of image files")
    if not all(isinstance(entry, (str, Path)) for entry in source):
        kinds = ", ".join(sorted({type(entry).__name__ for entry in source}))
        how = "for one array write numpy.stack or torch.stack" if any(map(is_array, source)) else "give their paths"
        raise UserError(f"data is a list of {kinds}, not of paths: {how}")
    words = [os.fspath(entry) for entry in source]
    if len(words) > 1 and any("," in word for word in words):
        name = next(word for word in words if "," in word)
        raise UserError(f"{name!r} has a comma, and cannot be one of several: rename it, or list its files in a .txt")
    return ",".join(words)


class Batch(dict[str, Any]):
    """A batch of rows. torch's DataLoader, which looks at the first item of a list of rows, passes it on as it is."""

    def __missing__(self, key: Any) -> "Batch":
        if key == 0:
            return self
        raise KeyError(key)


def _whole(batch: Batch, *, collate_fn_map: Any = None) -> Batch:
    return batch


class Images(Dataset):
    """N square uint8 images (C, S, S), read in batches.

    Subclasses implement `__len__`, `__getitems__` and `_update_digest`, and must be picklable: workers may be spawned.
    A plain torch DataLoader gives their batches: DataLoader(images, batch_size=64, shuffle=True).

    decodes: True if reading a row is slow enough for worker processes.
    is_whole: False for a part of other images.
    scale: how stored values become bytes, see `sslkit.data.decode.scale`. range: that of pixels of more than 8 bits.
    from_sample: the options of reading that a sample decided.
    mirror: whether a mirror image keeps its class (manifests).
    workers: number of these in `loader.batches_in_order`, or "auto"; a run sets its workers.
    item: of a row. sheet: the picture of its views.
    identifies: batches also have `pixel_digest`: (n,) int64, equal for the same image, see `sslkit.data.pixel_digest`;
        and `likeness`: (n, 4) int64, alike for near-copies, see `sslkit.data.likeness`.
    """

    decodes: ClassVar[bool] = True
    is_whole: bool = True
    workers: int | str = "auto"
    item: Item = IMAGE
    sheet: ClassVar[type[Sheet]] = Sheet
    scale: Scale = Scale()
    identifies: bool = False
    from_sample: Collection[str] = ()
    mirror: bool | None = None

    def __init__(
        self,
        identity: Identity,
        options: ImageOptions,
        *,
        channels: int,
        image_size: int,
        native_size: tuple[int, int] | None,
    ) -> None:
        self.name = identity.name
        self.source = identity.source
        self.splits = identity.splits
        self.labels = None if identity.labels is None else np.ascontiguousarray(identity.labels, dtype=np.int64)
        self.multi_labels, self.numbers, self.mirror = identity.multi_labels, identity.numbers, identity.mirror
        self.groups, self.group_values = identity.groups, identity.group_values
        self.classes = identity.classes
        self.licence = identity.licence
        if options.split == self.splits[0]:
            check_labels(options.columns, self, self.name)
        self.options = options
        self.split = options.split
        self.fit = options.fit
        self.channels = channels
        self.image_size = image_size
        self.native_size = native_size

    def __str__(self) -> str:
        return self.name

    @property
    def range(self) -> Range | None:
        return self.scale.range

    @property
    def view_size(self) -> int | None:
        """The side of the views of a run that names none; None: of files, whose views have any."""
        return self.image_size if self.native_size else None

    @property
    def in_card(self) -> dict[str, int]:
        """What a card says of the network's input, beside its size and channels."""
        return {}

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitems__(self, rows: list[int]) -> dict[str, Any]:
        """A batch of n rows:

        images: (n, C, S, S) uint8.
        index: (n,) int64, the row of each returned image (another than requested if that was unreadable).
        label: (n,) int64, -1 without labels.
        aspect: (n,) float32, width / height of the square's content: that of the original image under fit="squash", so
            that a crop can undo the distortion; 1 under fit="crop".
        bad: paths of the requested images that could not be read.
        """
        raise NotImplementedError

    def read_whole(self, rows: list[int]) -> dict[str, Any]:
        """The images, index and bad of `__getitems__`, each image (C, H, W) of its own size, upright."""
        raise NotImplementedError

    def __getitem__(self, row: int) -> dict[str, Any]:
        """One row with the keys of `__getitems__`, without the batch dimension. Raises IndexError."""
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} images")
        batch = self.__getitems__([row % len(self)])
        return {key: value if key == "bad" else value[0] for key, value in batch.items()}

    def at(
        self,
        *,
        image_size: int,
        channels: int,
        fit: str,
        interpolation: str = ImageOptions.interpolation,
        scale: Scale | None = None,
        resize: int | None = ImageOptions.resize,
    ) -> Self:
        """The same images with other options, without listing or decoding again. Options as in `open_images`.

        scale: in the place of one that was found; what was given of it stays, as do pixels of 8 bits.
        """
        fitting = {"image_size": image_size, "fit": fit, "interpolation": interpolation, "resize": resize}
        options = replace(self.options, channels=channels, **fitting)
        self._check_channels(channels)
        other = self._copy()
        other.options, other.fit = options, fit
        other.image_size, other.channels = image_size, channels
        if scale is not None and (wanted := self._complete_scale(scale)) != self.scale:
            other.rescale(wanted)
        return other

    def _complete_scale(self, scale: Scale) -> Scale:
        return self.options.scale.or_else(scale).or_else(self.scale).within(self.scale)

    def for_views(self, size: int) -> Self:
        """The same images to make views of this size from: files are decoded a little larger."""
        side = self.image_size if self.native_size else round(size * 8 / 7)
        return self if side == self.image_size else self.at(image_size=side, channels=self.channels, fit=self.fit)

    def clean(self, size: int) -> Self:
        """The same images as a network of this size is judged on them, and as its card says."""
        return self.at(channels=self.channels, **Resizing.usual(size).of_images())

    def without_draws(self, size: int) -> Self:
        """The same images without a draw in each epoch, for priors and statistics. size: of the views."""
        return self

    def describe(self) -> list[str]:
        """Lines on what is read of each row, for the first lines of a run."""
        return []

    def with_digests(self) -> Self:
        """The same images, whose batches have digests and hashes of the pixels that were decoded; see `identifies`."""
        other = copy.copy(self)
        other.identifies = True
        return other

    def part(self, rows: np.ndarray, split: str) -> Self:
        """The images of some rows (n,) int64, in their order, as a split of this name; labels keep their numbers."""
        other = self._copy()
        other.source, other.splits, other.split = None, (split,), split  # the source itself has no such split
        other.options, other.is_whole = replace(self.options, split=split), False
        other.labels = None if self.labels is None else self.labels[rows]
        other.multi_labels = None if self.multi_labels is None else self.multi_labels[rows]
        other.numbers = None if self.numbers is None else self.numbers[rows]
        other.groups = None if self.groups is None else self.groups[rows]
        other.group_values = None if self.group_values is None else [self.group_values[row] for row in rows]
        other._take(rows)
        return other

    def _take(self, rows: np.ndarray) -> None:
        """Keep these rows of what the subclass holds."""
        raise NotImplementedError

    def rescale(self, scale: Scale) -> None:
        """Read the stored values by another scale."""
        self.scale = scale
        self._forget()

    def _copy(self) -> Self:
        """A copy that is to be changed: it shares what was opened, and has no digest yet."""
        other = copy.copy(self)
        other._forget()
        return other

    def _forget(self) -> None:
        """Drop the digests."""
        for name in ("digest", "listing", "content_digest"):
            self.__dict__.pop(name, None)

    def _check_channels(self, channels: int) -> None:
        """Raises UserError unless the images can be converted to this number of channels."""
        raise NotImplementedError

    @cached_property
    def digest(self) -> str:
        """sha256 (hex) of the images' names and content, labels, and the options that change the pixels.

        The same for copies, on any machine. Files that the cache does not know are read.
        """
        return self._compute_digest(self._update_digest)

    @cached_property
    def listing(self) -> str:
        """sha256 (hex) like `digest`, of what is known without reading files: names and sizes instead of contents."""
        return self._compute_digest(self._update_listing)

    @cached_property
    def content_digest(self) -> str:
        """sha256 (hex) of names and content alone: that of the same images with other options or labels, too."""
        digest = hashlib.sha256()
        self._update_digest(digest)
        return digest.hexdigest()

    def _compute_digest(self, update: Callable[[Any], None]) -> str:
        digest = hashlib.sha256(repr(self._chosen()).encode())
        digest.update(b"" if self.options.interpolation == "bilinear" else self.options.interpolation.encode())
        for values in (self.labels, self.multi_labels, self.numbers, self.groups):
            digest.update(b"" if values is None else values.tobytes())
        update(digest)
        return digest.hexdigest()

    def _chosen(self) -> tuple[Any, ...]:
        """The options that the pixels depend on, and the names of the labels.

        max_pixels, too: another image is read in the place of one that is too large.
        """
        deep = () if self.range is None else (self.range,)
        deep += (("opacity", False),) if self.scale.opacity is False else ()
        deep += () if self.scale.fill in (None, fill.TAGGED) else (("fill", self.scale.fill),)
        limit = () if self.options.max_pixels is None else ("max_pixels", self.options.max_pixels)
        resize = self.options.resize or self.image_size
        whole = () if self.fit == "squash" and self.options.resize is None else ("resize", resize)
        return (self.channels, self.image_size, self.fit, self.classes, *deep, *limit, *whole)

    def _update_digest(self, digest: Any) -> None:
        """Feed the identity of the content to a hashlib object."""
        raise NotImplementedError

    def _update_listing(self, digest: Any) -> None:
        """Feed the names and sizes; of what is in memory the content."""
        self._update_digest(digest)

    def batch(
        self, images: Any, index: np.ndarray, aspect: torch.Tensor, bad: list[str], **more: torch.Tensor
    ) -> Batch:
        """The batch of `__getitems__` for these rows, with their labels. images: a tensor or `crops.Crops`."""
        default_collate_fn_map.setdefault(Batch, _whole)  # not at import, as `--help` has a stand-in for torch
        label = torch.full((len(index),), -1) if self.labels is None else torch.from_numpy(self.labels[index])
        fields = {"images": images, "index": torch.from_numpy(index), "label": label, "aspect": aspect}
        return Batch(**fields, **more, bad=bad)


def check_split(name: str, split: str, splits: tuple[str, ...]) -> None:
    """Raises UserError unless `split` is one of `splits`."""
    if split not in splits:
        raise UserError(f"{name} has no split {split!r}: {nearest(split, splits)}")
