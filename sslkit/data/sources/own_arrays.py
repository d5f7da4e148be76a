"""An array or a tensor of a Python program as a source of images."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from sslkit.data.arrays import ArrayImages, as_numpy, check_pixels, scale_of_array, to_nchw
from sslkit.data.decode.scale import Scale, bytes_of
from sslkit.data.images import Identity, ImageOptions
from sslkit.data.sources.column_values import refuse
from sslkit.data.sources.own_labels import labels_of, numbers_of
from sslkit.errors import UserError

NAME = "array"


class Arrays(Dataset):
    """Images of one array, and their labels. pixels: (N, C, H, W). targets: (N,), or None."""

    def __init__(self, pixels: Any, labels: Any = None, *, channels_last: bool | None = None) -> None:
        values = check_pixels(as_numpy(pixels), NAME)
        if channels_last is None:
            values = to_nchw(values, NAME)
        elif values.ndim != 4:
            raise UserError(f"channels_last={channels_last} is for images (N, H, W, C); got {values.shape}")
        self.pixels = np.ascontiguousarray(np.moveaxis(values, -1, 1)) if channels_last else values
        self.targets = None if labels is None else as_numpy(labels)
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

    def __init__(self, values: np.ndarray, found: Scale, identity: Identity, options: ImageOptions) -> None:
        self._values, self.scale = (None if found.range is None else values), found
        super().__init__(bytes_of(values, found), identity, options)

    def rescale(self, scale: Scale) -> None:
        if (scale.range, scale.fill) != (self.scale.range, self.scale.fill):
            self.pixels = bytes_of(self._values, scale)
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
    refuse(
        replace(options.columns, label_kind=None),
        "an array",
        "has no columns: give (images, labels), an .npz file, or a Dataset",
    )
    about: dict[str, Any] = {}
    if arrays.targets is not None and options.columns.reads_numbers:
        about = numbers_of(arrays, arrays.__getitem__, NAME, options.columns)
    elif arrays.targets is not None:
        about = dict(
            zip(("labels", "classes"), labels_of(arrays, arrays.__getitem__, NAME, options.columns), strict=True)
        )
    scale = scale_of_array(arrays.pixels, options, NAME)
    return OwnArrays(arrays.pixels, scale, Identity(NAME, None, ("train",), **about), options)
