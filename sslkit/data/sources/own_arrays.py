"""An array or a tensor of a Python program as a source of images."""

import hashlib
import warnings
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from sslkit.data.arrays import ArrayImages, checked_pixels, scale_of_array, to_nchw
from sslkit.data.decode import scale
from sslkit.data.decode.scale import BYTE, Range, Scale, Values, to_bytes
from sslkit.data.images import Identity, ImageOptions
from sslkit.data.sources.own_labels import labels_of
from sslkit.errors import UserError

NAME = "array"
_SOME = 256  # images whose channels are looked at


class Arrays(Dataset):
    """Images of one array, and their labels. pixels: (N, C, H, W). targets: (N,), or None."""

    def __init__(self, pixels: Any, labels: Any = None, *, channels_last: bool | None = None) -> None:
        values = checked_pixels(_numpy(pixels), NAME)
        if channels_last is None:
            values = to_nchw(values, NAME)
        elif values.ndim != 4:
            raise UserError(f"channels_last={channels_last} is for images (N, H, W, C); got {values.shape}")
        self.pixels = np.ascontiguousarray(np.moveaxis(values, -1, 1)) if channels_last else values
        self.targets = None if labels is None else _numpy(labels)
        if self.targets is not None and self.targets.shape != (len(values),):
            raise UserError(
                f"{NAME}: {len(values)} images and labels of shape {self.targets.shape}: one label an image is needed"
            )

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.pixels[row]


class OwnArrays(ArrayImages):
    """values: (N, C, H, W), of which those of more than 8 bits have one range. They cannot be opened by a name."""

    def __init__(self, values: np.ndarray, found: Range | None, identity: Identity, options: ImageOptions) -> None:
        self._values = None if found is None else values
        self.scale = scale_of_array(values, found, options, NAME)
        super().__init__(to_bytes(values, found or BYTE), identity, options)

    def rescale(self, scale: Scale) -> None:
        if scale.range != self.range:
            self.pixels = to_bytes(self._values, scale.range)
        super().rescale(scale)

    def _take(self, rows: np.ndarray) -> None:
        self.pixels = self.pixels[rows]
        self._values = None if self._values is None else self._values[rows]

    def _update_digest(self, digest: Any) -> None:
        if self._values is None:
            super()._update_digest(digest)
        else:
            digest.update(repr(self.pixels.shape).encode())
            digest.update(hashlib.sha256(np.ascontiguousarray(self._values)).digest())


def open_arrays(arrays: Arrays, options: ImageOptions) -> OwnArrays:
    """The images of an array. Values of more than 8 bits have one range, with a warning that says it."""
    labels, classes = None, None
    if arrays.targets is not None:
        labels, classes = labels_of(arrays, arrays.__getitem__, NAME)
    found = _range(arrays.pixels, options)
    return OwnArrays(arrays.pixels, found, Identity(NAME, None, ("train",), labels, classes), options)


def _range(values: np.ndarray, options: ImageOptions) -> Range | None:
    if not scale.is_deep(values.dtype):
        if isinstance(options.range, tuple):
            warnings.warn(scale.unused(options.range, NAME), stacklevel=1)
        return None
    if isinstance(options.range, tuple) or not values.size:
        return options.range or BYTE
    found = Values()
    found.add(values)
    some = values[:: max(1, len(values) // _SOME)]
    found.add_channels(np.moveaxis(some, 1, 0) if some.shape[1] > 1 else ())
    chosen = found.exact() if options.range == scale.AUTO else found.usual()
    if chosen != BYTE or found.advice(chosen):
        warnings.warn(f"{NAME}: {found.kind} images, whose {found.said(chosen)}", stacklevel=1)
    return chosen


def _numpy(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
