"""A data set that is judged on: its images, labels and metric."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from evaluation.datasets._picked import PickedImages
from sslkit.data.images import Images


@dataclass(frozen=True)
class Split:
    """An open split of a data set.

    images: N square uint8 images. y: (N,) int64; or (N, K) int8 of 1, -1, 0 (do not count) for several labels; or (N,)
    float64, numbers, NaN for none. These are the labels to use (`images` may lack them).
    classes: their names; of numbers that of what they are. ids: (N,) unique str per image, independent of the order of
    the listing: the path below the set's folder, or a hash of the pixels for arrays, numbered where images are equal.
    metric: one of METRICS; it belongs to the data set. groups: (N,) int64, equal for images of one object, or pages of
    one file, or None.
    boxes: (N, 4) left, upper, right, lower of the object in its whole image, as shares of that; nan for an image of no
    object; None for images that are not parts of others.
    name, split: for tables. note: printed beside a number (which draw, which copy), or "".
    source: what `open_split` was given, of which this may be a part; None of a split that was made otherwise.
    digest: sha256 of the list of images, their labels and the pixels' options.
    pixel_digests: (N,) int64, equal for the same image, see `sslkit.data.pixel_digest`; None before they were read.
    likeness: (N, 4) int64, alike for near-copies, see `sslkit.data.likeness`; likewise.
    """

    images: Images
    y: np.ndarray
    classes: Sequence[str]
    ids: np.ndarray
    metric: str
    name: str
    split: str
    groups: np.ndarray | None = field(default=None, repr=False)
    note: str = ""
    boxes: np.ndarray | None = field(default=None, repr=False)
    source: Any = field(default=None, repr=False)
    pixel_digests: np.ndarray | None = field(default=None, repr=False)
    likeness: np.ndarray | None = field(default=None, repr=False)

    @property
    def has_numbers(self) -> bool:
        """True for labels that are numbers, not classes."""
        return self.y.dtype.kind == "f"

    @property
    def digest(self) -> str:
        return self.images.digest

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: np.ndarray) -> "Split":
        """Select images in the given order. rows: (n,) int64. The classes keep their numbers."""
        parts = {name: getattr(self, name) for name in ("groups", "boxes", "pixel_digests", "likeness")}
        parts = {name: None if array is None else array[rows] for name, array in parts.items()}
        return replace(self, images=PickedImages(self.images, rows), y=self.y[rows], ids=self.ids[rows], **parts)


def row_ids(rows: np.ndarray) -> np.ndarray:
    """Return (N,) hashes of the rows' values, numbered where rows are equal: ids that do not depend on the order."""
    seen: dict[str, int] = {}
    ids = []
    for row in rows:
        name = hashlib.blake2b(np.ascontiguousarray(row), digest_size=12).hexdigest()
        seen[name] = seen.get(name, 0) + 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return np.array(ids)
