"""Precomputed features from a .npy file."""

import numpy as np
from torch import Tensor

from sslkit.errors import UserError
from sslkit.priors.base import Prior


class FilePrior(Prior):
    """Features from a .npy file, by the image's row in the data set; memory-mapped."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name)
        try:
            self.array = np.load(path, mmap_mode="r", allow_pickle=False)
        except OSError as error:
            raise UserError(f"prior {name}: cannot open {path!r}: {error.strerror or error}") from error
        except (ValueError, EOFError) as error:
            raise UserError(f"prior {name}: {path} is no .npy file of numbers, as numpy.save writes it") from error
        if not isinstance(self.array, np.ndarray):
            raise UserError(f"prior {name}: {path} holds several arrays: write one with numpy.save, features.npy")
        if self.array.ndim != 2 or self.array.dtype.kind != "f":
            raise UserError(
                f"prior {name} needs floats (images, features), {path} has {self.array.dtype} {self.array.shape}"
            )

    @classmethod
    def named(cls, name: str, *, size: int | None, precision: str) -> "FilePrior":
        return cls(name, name.partition(":")[2])

    def extract(self, pixels: Tensor) -> Tensor:
        raise UserError(f"prior {self.name} has no features of views: use mode=cached")
