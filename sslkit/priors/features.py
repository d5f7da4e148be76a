"""Precomputed features from a .npy file."""

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from sslkit.data.sources.npz import DAMAGED
from sslkit.errors import UserError
from sslkit.files.reading import regular
from sslkit.priors.base import ROWS_READ, Prior, check_varied

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images


class FilePrior(Prior):
    """Features from a .npy file, by the image's row in the data set; memory-mapped."""

    resizes = False

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name)
        if not path:
            raise UserError(f"prior {name} names no file: give features:FILE.npy")
        try:
            self.array = np.load(regular(path), mmap_mode="r", allow_pickle=False)
        except OSError as error:
            raise UserError(f"prior {name}: cannot open {path!r}: {error.strerror or error}") from error
        except DAMAGED as error:
            raise UserError(f"prior {name}: {path} is no .npy file of numbers, as numpy.save writes it") from error
        if not isinstance(self.array, np.ndarray):
            raise UserError(f"prior {name}: {path} holds several arrays: write one with numpy.save, features.npy")
        if self.array.ndim != 2 or self.array.dtype.kind != "f":
            raise UserError(
                f"prior {name} needs floats (images, features), {path} has {self.array.dtype} {self.array.shape}"
            )

    @classmethod
    def from_name(cls, name: str, *, size: int | None, precision: str) -> "FilePrior":
        return cls(name, name.partition(":")[2])

    def check(self, dataset: "Images") -> None:
        """Raises UserError if there is not one row for each image, and for rows that are not finite or all equal."""
        if len(self.array) != len(dataset):
            raise UserError(
                f"prior {self.name} has {len(self.array)} rows, {dataset.name} has {len(dataset)} images: save one "
                "row for each image, in the order of the data set"
            )
        for start in range(0, len(self.array), ROWS_READ):
            block = np.asarray(self.array[start : start + ROWS_READ], dtype=np.float32)
            broken = np.flatnonzero(~np.isfinite(block).all(1))
            if len(broken):
                raise UserError(f"prior {self.name}: row {start + broken[0]} has NaN or infinite features: repair it")
        check_varied(self.name, self.array)

    def extract(self, pixels: Tensor) -> Tensor:
        raise UserError(f"prior {self.name} has no features of views, only of clean images: use mode=cached")
