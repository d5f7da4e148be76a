"""Images from a NumPy archive."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.arrays import ArrayImages, check_pixels, scale_of_array, to_nchw
from sslkit.data.columns import Columns, group_numbers, is_pattern
from sslkit.data.decode import scale
from sslkit.data.decode.scale import Scale
from sslkit.data.images import Identity, ImageOptions, check_split
from sslkit.data.sources.class_names import list_names
from sslkit.data.sources.column_values import check_groups, refuse, refuse_filter
from sslkit.data.sources.label_numbers import numbers_in_values
from sslkit.data.sources.npz_labels import DAMAGED, NOT_KNOWN, labels_of, read_array
from sslkit.errors import UserError, nearest
from sslkit.files.reading import stand_in_of
from sslkit.terminal import say

_KEYS = {  # split -> the pairs of keys that may hold its images and labels
    "train": (("x_train", "y_train"), ("train_images", "train_labels"), ("x", "y"), ("images", "labels")),
    "val": (("x_val", "y_val"), ("x_valid", "y_valid"), ("val_images", "val_labels")),
    "test": (("x_test", "y_test"), ("test_images", "test_labels")),
}


class NpzImages(ArrayImages):
    """Images of one array of a file, under a key. stored: sha256 of pixels of more than 8 bits, as they are stored."""

    def __init__(self, values: np.ndarray, key: str, found: Scale, identity: Identity, options: ImageOptions) -> None:
        self.key, self.scale = key, found
        self.stored = None if found.range is None else hashlib.sha256(np.ascontiguousarray(values)).digest()
        super().__init__(_pixels(values, found, f"{identity.source}: {key}"), identity, options)

    def rescale(self, scale: Scale) -> None:
        if (scale.range, scale.fill) != (self.scale.range, self.scale.fill):
            with _load(Path(self.source)) as file:
                values = to_nchw(read_array(file, self.key, Path(self.source)), self.key)
            self.pixels = _pixels(values, scale, f"{self.source}: {self.key}")
        super().rescale(scale)

    def _update_digest(self, digest: Any) -> None:
        if self.stored is None:
            super()._update_digest(digest)
        else:
            digest.update(repr(self.pixels.shape).encode())
            digest.update(self.stored)


def splits_of_npz(path: Path, columns: Columns) -> tuple[str, ...]:
    """The splits named by the file's keys. Raises UserError if there are none."""
    with _load(path) as file:
        return tuple(_keys(file, path, columns))


def open_npz(path: Path, options: ImageOptions) -> NpzImages:
    """Images (N, H, W), (N, H, W, C) or (N, C, H, W) and labels (N,), integers or names.

    Pixels of more than 8 bits have the scale of the training images, in all splits; a warning says it, and how many
    values lie outside.

    Labels (N, K) of 1 and 0 are those of several classes an image: 1 (yes), 0 (no), NaN not known; of 1 and -1 alone
    these are the no, with a warning. Of labels that are -1, 0 and 1 the array `not_known` holds the one that is not
    known: 0 as in VOC, or -1 as in CheXpert, where it means uncertain. With a single 1 in every row they are one class
    an image, with a warning.
    Keys: x_train, y_train, x_test, y_test (x_val, y_val), or train_images, train_labels (as of MedMNIST), or x, y, or
    images, labels; labels and `classes`, the names of the labels, may be missing. `columns.label` and `columns.group`
    name other arrays, (N,), called as `NAME_train` and `NAME_test` where there are several splits.
    Pickled objects are refused.
    Raises UserError for other keys, types, shapes, and for NaN pixels.
    """
    with _load(path) as file:
        keys = _keys(file, path, options.columns)
        check_split(str(path), options.split, tuple(keys))
        values = to_nchw(_values(file, keys, options.split, path), f"{path}: {keys[options.split][0]}")
        scale = _scale(file, keys, values, options, path)
        labels = _labels(file, keys, options, path)
        groups = _groups(file, keys, options, path)
        used = {key for pair in keys.values() for key in pair} | {"classes", NOT_KNOWN}
        used |= {_key_of(options.columns.group, split) for split in keys} if options.columns.group else set()
        if others := sorted(set(file.files) - used):
            say.warn(f"{path}: not used of its arrays: {list_names(others)}", stacklevel=1)
    identity = Identity(path.stem, path, tuple(keys), **labels, groups=groups)
    return NpzImages(values, keys[options.split][0], scale, identity, options)


def _labels(
    file: np.lib.npyio.NpzFile, keys: dict[str, tuple[str, str]], options: ImageOptions, path: Path
) -> dict[str, Any]:
    """The labels of a split as of `data.images.Identity`."""
    split, columns = options.split, options.columns
    if not columns.reads_numbers:
        labels, classes = labels_of(file, keys, split, path, columns.label_column)
        return {"classes": classes, "labels" if labels is None or labels.ndim == 1 else "multi_labels": labels}
    if (key := keys[split][1]) not in file.files:
        return {}
    values = read_array(file, key, path)
    if values.ndim != 1:
        raise UserError(
            f"{path}: {key} has shape {values.shape}, and columns.label_kind=number reads one an image, (N,)"
        )
    return numbers_in_values(values.tolist(), [f"row {row} of {key}" for row in range(len(values))], columns, str(path))


def _values(file: np.lib.npyio.NpzFile, keys: dict[str, tuple[str, str]], split: str, path: Path) -> np.ndarray:
    key = keys[split][0]
    return check_pixels(read_array(file, key, path), f"{path}: {key}")


def _scale(
    file: np.lib.npyio.NpzFile, keys: dict[str, tuple[str, str]], values: np.ndarray, options: ImageOptions, path: Path
) -> Scale:
    """The scale of one split's values (N, C, H, W): as given, or that of the training images."""
    first = next(iter(keys))
    train = None
    if options.split != first and scale.is_deep(values.dtype) and options.scale.range is None:
        train = to_nchw(_values(file, keys, first, path), str(path))
        shared = scale.is_deep(train.dtype) and (train.dtype.kind == "f") == (values.dtype.kind == "f") and train.size
        train = train if shared else None
    return scale_of_array(values, options, str(path), train)


def _pixels(values: np.ndarray, found: Scale, where: str) -> np.ndarray:
    """Pixels (N, C, H, W) uint8, with a warning if values lie outside the range."""
    number, rows = scale.outside(values, found) if found.range and values.size else (0, 0)
    if number:
        say.warn(
            f"{where}: {number:,} values in {rows:,} of {len(values):,} images lie outside range="
            f"{scale.written(found.range)} and are clipped",
            stacklevel=1,
        )
    return scale.bytes_of(values, found)


def _load(path: Path) -> np.lib.npyio.NpzFile:
    try:
        file = np.load(path, allow_pickle=False)
    except DAMAGED as error:
        raise UserError(f"{path} is not a readable .npz file: {stand_in_of(path) or error}") from error
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise UserError(f"{path} holds one bare array; write it with numpy.savez(path, x=images, y=labels)")
    return file


def _keys(file: np.lib.npyio.NpzFile, path: Path, columns: Columns) -> dict[str, tuple[str, str]]:
    """The keys of the images and labels of each split. Raises UserError without images, and for other columns."""
    refuse_filter(columns, str(path))
    if columns.split or columns.image or len(columns.labels) > 1 or any(is_pattern(word) for _, word in columns.given):
        refuse(columns, str(path), "is read by its arrays x_train, x_test and the like: columns.label, .group name one")
    keys = {}
    for split, pairs in _KEYS.items():
        present = [pair for pair in pairs if pair[0] in file.files]
        if present:
            keys[split] = present[0]
    if not keys:
        raise UserError(
            f"{path} has the keys {', '.join(file.files) or '(none)'}; images are looked for under x_train and "
            f"x_test, x, or images, and labels under y_train and y_test, y, or labels"
        )
    for option, word in columns.given:
        if not any(key in file.files for split in keys for key in (_key_of(word, split), word)):
            raise UserError(f"{option}={word}: {path} has no such array: {nearest(word, file.files)}")
    if columns.labels:
        return {split: (x, _key(file, columns.labels[0], split)) for split, (x, _) in keys.items()}
    return keys


def _key_of(column: str, split: str) -> str:
    return f"{column}_{split}"


def _key(file: np.lib.npyio.NpzFile, column: str, split: str) -> str:
    """The array of a column for a split: `NAME_train`, or for a file of one split `NAME`."""
    return _key_of(column, split) if _key_of(column, split) in file.files or split != "train" else column


def _groups(
    file: np.lib.npyio.NpzFile, keys: dict[str, tuple[str, str]], options: ImageOptions, path: Path
) -> np.ndarray | None:
    column = options.columns.group
    if column is None:
        return None
    values = {}
    for split, (x_key, _) in keys.items():
        key, count = _key(file, column, split), len(read_array(file, x_key, path))
        values[split] = read_array(file, key, path).tolist() if key in file.files else [None] * count
        if len(values[split]) != count:
            raise UserError(f"{path}: {key} has {len(values[split]):,} values, and {x_key} {count:,} images")
    check_groups(options.columns, values, str(path))
    return group_numbers(values[options.split], [f"{options.split}/{row}" for row in range(len(values[options.split]))])
