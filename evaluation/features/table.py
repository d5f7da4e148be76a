"""Features: outputs of a frozen backbone on one split of a data set, extracted once and used by every protocol."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from evaluation.datasets._copies import together
from evaluation.datasets.base import row_ids
from evaluation.features.checks import is_no_label, of_column, of_one_hot, refuse_holes
from sslkit.data.sources.class_names import renumber, unseen
from sslkit.errors import UserError

CHECKED = 2**26  # values that are checked at a time: 256 MiB of float32


@dataclass(frozen=True, eq=False)
class Features:
    """N rows of features with their labels.

    x: (N, D) float32, memory-mapped if it comes from a cache.
    y: (N,) int64 labels, -1 unlabelled; multi-label: (N, K) int8 of 1 (yes), -1 (no), 0 (do not count).
    classes: the names of the labels, in their order.
    digest: sha256 of everything that x and y depend on (weights, transform, list of images, split).
    ids: (N,) unique str per image, independent of the order of the rows.
    metric: of the data set: "top1", "mean_per_class", "map11".
    model, data, split: names for the tables. groups: (N,) int64, equal for images that must stay together, or None.
    note: printed beside their numbers. unreadable: ids of the unreadable images, which are left out.
    pixel_digests: (N,) int64 of the images, see `sslkit.data.pixel_digest`; None for features that were given.
    likeness: (N, 4) int64, alike for near-copies, see `sslkit.data.likeness`; likewise.
    """

    x: np.ndarray
    y: np.ndarray
    classes: Sequence[str]
    digest: str
    ids: np.ndarray
    metric: str = "top1"
    model: str = ""
    data: str = ""
    split: str = ""
    groups: np.ndarray | None = field(default=None, repr=False)
    note: str = ""
    unreadable: tuple[str, ...] = ()
    pixel_digests: np.ndarray | None = field(default=None, repr=False)
    likeness: np.ndarray | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.x)

    @cached_property
    def images(self) -> np.ndarray:
        """(N,) int64, equal for the same image; of features that were given, for the same id with equal features."""
        if self.pixel_digests is not None:
            return self.pixel_digests
        rows = (f"{name} ".encode() + row.tobytes() for name, row in zip(self.ids, self.x, strict=True))
        return np.array([int.from_bytes(hashlib.sha256(row).digest()[:8], "little", signed=True) for row in rows])

    @property
    def together(self) -> np.ndarray | None:
        """(N,) equal for images that must stay together, of one group or the same; None if each stands alone."""
        return together(self.images, self.groups)

    def take(self, rows: np.ndarray) -> "Features":
        """Select rows in the given order: (n,) int64, or (N,) bool."""
        rows = np.flatnonzero(rows) if np.asarray(rows).dtype == bool else np.asarray(rows)
        digest = hashlib.sha256(self.digest.encode() + np.ascontiguousarray(rows, dtype=np.int64).tobytes()).hexdigest()
        beside = {name: getattr(self, name) for name in ("groups", "pixel_digests", "likeness")}
        beside = {name: None if array is None else array[rows] for name, array in beside.items()}
        return replace(self, x=self.x[rows], y=self.y[rows], ids=self.ids[rows], digest=digest, **beside)

    def labelled(self) -> "Features":
        """Select the rows that have a label."""
        return self.take(self.y >= 0) if self.y.ndim == 1 else self


def as_features(given: Any, where: str = "features") -> Features:
    """Check `Features` or a pair of arrays (x, y), and return `Features`.

    x: (N, D) numpy, torch or nested lists, any float type. y: (N,) integers or any hashable names, or (N, K).
    where: their name in error messages.
    Raises UserError for other shapes, NaN or infinite features, features that are all equal, missing labels.
    """
    features = given if isinstance(given, Features) else _of_pair(given, where)
    _check_x(features.x, where)
    if features.y.shape[:1] != features.x.shape[:1]:
        raise UserError(f"{where}: {len(features.x)} rows of features and {len(features.y)} labels")
    if features.y.ndim == 1 and (features.y < 0).any():
        missing = int((features.y < 0).sum())
        raise UserError(
            f"{where}: {missing} of {len(features.y)} labels are -1 (no label); leave these rows out with "
            "features.labelled(), or x[y >= 0], y[y >= 0]"
        )
    return features


def match_labels(train: Any, test: Any) -> tuple[Features, Features]:
    """Return two sets of features of one model, with the test labels renumbered as in training.

    Raises UserError as in `as_features`, for different widths, and for classes that occur only in test (with names).
    """
    train, test = as_features(train, "train"), as_features(test, "test")
    if train.x.shape[1] != test.x.shape[1]:
        raise UserError(f"train has {train.x.shape[1]} features a row and test {test.x.shape[1]}: two models?")
    if train.y.ndim != test.y.ndim:
        raise UserError("one of train and test has several labels per image, the other has one")
    if train.y.ndim == 2:
        return train, test
    y = renumber(test.y, test.classes, train.classes, "test")
    unseen(y, train.y, train.classes, "test")
    return train, replace(test, y=y, classes=train.classes)


class JoinedRows:
    """Rows of two arrays (n, D) and (m, D), as of one that is read where it is asked for: (n + m, D)."""

    def __init__(self, first: np.ndarray, second: np.ndarray) -> None:
        self.parts = first, second
        self.shape = (len(first) + len(second), *first.shape[1:])
        self.ndim, self.dtype = first.ndim, first.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        """The rows of a slice, of (k,) numbers, or one."""
        rows = np.arange(len(self))[rows]
        first, second = self.parts
        if rows.ndim == 0:
            return first[rows] if rows < len(first) else second[rows - len(first)]
        joined = np.empty((len(rows), *self.shape[1:]), self.dtype)
        is_first = rows < len(first)
        joined[is_first], joined[~is_first] = first[rows[is_first]], second[rows[~is_first] - len(first)]
        return joined


def join_splits(first: Features, second: Features, *, in_memory: bool = True) -> Features:
    """Concatenate two splits of one data set; the ids get the split's name as a prefix.

    Labels of the second are renumbered as those of the first. in_memory: False leaves the features where they are.
    Raises UserError for a class that only the second has.
    """
    if list(first.classes) != list(second.classes):
        if first.y.ndim == 2:
            raise UserError(f"{first.split} and {second.split} of {first.data} have other classes, or in another order")
        second = replace(second, y=renumber(second.y, second.classes, first.classes, second.split))
    ids = [f"{split.split}/{name}" for split in (first, second) for name in split.ids]
    groups = None
    if first.groups is not None and second.groups is not None:  # numbered over all splits
        groups = np.concatenate([first.groups, second.groups])
    hashes = [split.likeness for split in (first, second)]
    return replace(
        first,
        x=np.concatenate([first.x, second.x]) if in_memory else JoinedRows(first.x, second.x),
        y=np.concatenate([first.y, second.y]),
        ids=np.array(ids),
        groups=groups,
        split=f"{first.split}+{second.split}",
        digest=hashlib.sha256(f"{first.digest} {second.digest}".encode()).hexdigest(),
        note="; ".join(dict.fromkeys(split.note for split in (first, second) if split.note)),
        unreadable=first.unreadable + second.unreadable,
        pixel_digests=np.concatenate([first.images, second.images]),
        likeness=None if any(some is None for some in hashes) else np.concatenate(hashes),
    )


def _of_pair(given: Any, where: str) -> Features:
    try:
        x, y = given
    except (TypeError, ValueError) as error:
        raise UserError(f"{where} must be Features or a pair of arrays (x, y), not {type(given).__name__}") from error
    refuse_holes(x, f"{where}: features")
    refuse_holes(y, f"{where}: labels")
    try:
        x = np.ascontiguousarray(_numpy(x), dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: features must be numbers, (N, D): {error}") from error
    if isinstance(y, (list, tuple)) and any(isinstance(label, tuple) for label in y):
        y = [str(label) for label in y]  # numpy would turn the parts of a name into a second dimension
    y, classes = _number_labels(_numpy(y), where)
    ids = row_ids(x)
    digest = hashlib.sha256(repr((x.shape, y.shape, classes)).encode())
    digest.update(x)
    digest.update(np.ascontiguousarray(y))
    metric = "top1" if y.ndim == 1 else "map11"
    return Features(x, y, classes, digest.hexdigest(), ids, metric)


def _numpy(values: Any) -> np.ndarray:
    is_float_tensor = hasattr(values, "detach") and values.is_floating_point()  # bf16 has no numpy type
    return values.detach().float().cpu().numpy() if is_float_tensor else np.asarray(values)


def _number_labels(y: np.ndarray, where: str) -> tuple[np.ndarray, list[str]]:
    """Return labels 0 to K - 1 in sorted order of the given values, -1 for missing ones, and the K names."""
    y = y if y.dtype.kind in "iuf" and (y == -1).any() else of_column(y)
    if y.dtype.kind == "f":
        if not np.isfinite(y).all() or (y != np.rint(y)).any():
            raise UserError(f"{where}: labels must be integers or names, found NaN or fractions")
        y = y.astype(np.int64)
    if (classes := of_one_hot(y)) is not None:
        return classes, [str(k) for k in range(y.shape[1])]
    if y.ndim == 2 and y.dtype.kind in "iub":
        return _several(y, where)
    if y.ndim != 1:
        raise UserError(f"{where}: labels must be (N,), or (N, K) for several labels an image, not {y.shape}")
    if y.dtype.kind == "O" and any(map(is_no_label, y)):
        raise UserError(f"{where}: some labels are None or NaN; leave these rows out")
    y = y if y.dtype.kind in "iub" else y.astype(str)
    names, numbered = np.unique(y, return_inverse=True)
    missing = int((names < 0).sum()) if y.dtype.kind in "iub" else 0
    return np.maximum(numbered.astype(np.int64) - missing, -1), [str(name) for name in names[missing:]]


def _several(y: np.ndarray, where: str) -> tuple[np.ndarray, list[str]]:
    if not np.isin(y, (-1, 0, 1)).all():
        raise UserError(f"{where}: labels of shape {y.shape} must be 1 (yes), -1 (no) and 0 (do not count)")
    if not (y == -1).any():
        raise UserError(f"{where}: labels of shape {y.shape} contain no -1 (no), and are not one-hot")
    return y.astype(np.int8), [str(k) for k in range(y.shape[1])]


def _check_x(x: np.ndarray, where: str) -> None:
    if x.ndim != 2 or 0 in x.shape:
        raise UserError(f"{where}: features must be (N, D) with at least one row, not {x.shape}")
    block = max(CHECKED // x.shape[1], 1)  # rows at a time, as they may lie on the disk
    for start in range(0, len(x), block):
        finite = np.isfinite(x[start : start + block]).all(1)
        if not finite.all():
            row = start + int(np.flatnonzero(~finite)[0])
            raise UserError(f"{where}: features are NaN or infinite, the first in row {row}: was the model sound?")
    if len(x) > 1 and all((x[start : start + block] == x[0]).all() for start in range(0, len(x), block)):
        raise UserError(f"{where}: all {len(x)} rows of features are equal: were the weights loaded?")


def one_label(features: Features, protocol: str) -> Features:
    """Return the features unchanged. Raises UserError for several labels per image."""
    if features.y.ndim != 1:
        raise UserError(
            f"{protocol} needs one label per image; {features.data or 'these features'} has {features.y.shape[1]} "
            "yes/no labels per image: use the linear probe"
        )
    return features
