"""Images from a NumPy archive."""

import hashlib
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.arrays import ArrayImages, check_pixels, scale_of_array, to_nchw
from sslkit.data.decode import scale
from sslkit.data.decode.scale import Scale
from sslkit.data.images import Identity, ImageOptions, check_split
from sslkit.data.sources.class_names import list_names
from sslkit.data.sources.label_values import classes_of_splits, warn_of_negative
from sslkit.errors import UserError
from sslkit.files.reading import stand_in_of
from sslkit.terminal import say

DAMAGED = (  # raised by NumPy and zipfile for a truncated or changed file
    OSError,
    ValueError,
    EOFError,
    MemoryError,
    LookupError,
    RuntimeError,  # NotImplementedError too
    OverflowError,
    TypeError,  # a shape of other things than numbers
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
_NOT_KNOWN = "not_known"  # the array with the value that is neither yes nor no
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
                values = to_nchw(_read_array(file, self.key, Path(self.source)), self.key)
            self.pixels = _pixels(values, scale, f"{self.source}: {self.key}")
        super().rescale(scale)

    def _update_digest(self, digest: Any) -> None:
        if self.stored is None:
            super()._update_digest(digest)
        else:
            digest.update(repr(self.pixels.shape).encode())
            digest.update(self.stored)


def splits_of_npz(path: Path) -> tuple[str, ...]:
    """The splits named by the file's keys. Raises UserError if there are none."""
    with _load(path) as file:
        return tuple(_keys(file, path))


def open_npz(path: Path, options: ImageOptions) -> NpzImages:
    """Images (N, H, W), (N, H, W, C) or (N, C, H, W) and labels (N,), integers or names.

    Pixels of more than 8 bits have the scale of the training images, in all splits; a warning says it, and how many
    values lie outside.

    Labels (N, K) of 1 and 0 are those of several classes an image: 1 (yes), 0 (no), NaN not known; of 1 and -1 alone
    these are the no, with a warning. Of labels that are -1, 0 and 1 the array `not_known` holds the one that is not
    known: 0 as in VOC, or -1 as in CheXpert, where it means uncertain. With a single 1 in every row they are one class
    an image, with a warning.
    Keys: x_train, y_train, x_test, y_test (x_val, y_val), or train_images, train_labels (as of MedMNIST), or x, y, or
    images, labels; labels and `classes`,
    the names of the labels, may be missing. Pickled objects are refused.
    Raises UserError for other keys, types, shapes, and for NaN pixels.
    """
    with _load(path) as file:
        keys = _keys(file, path)
        check_split(str(path), options.split, tuple(keys))
        values = to_nchw(_values(file, keys, options.split, path), f"{path}: {keys[options.split][0]}")
        scale = _scale(file, keys, values, options, path)
        labels, classes = _labels(file, keys, options.split, path)
        if others := sorted(
            set(file.files) - {key for pair in keys.values() for key in pair} - {"classes", _NOT_KNOWN}
        ):
            say.warn(f"{path}: not used of its arrays: {list_names(others)}", stacklevel=1)
    named = {"classes": classes, "labels" if labels is None or labels.ndim == 1 else "multi_labels": labels}
    identity = Identity(path.stem, path, tuple(keys), **named)
    return NpzImages(values, keys[options.split][0], scale, identity, options)


def _values(file: np.lib.npyio.NpzFile, keys: dict[str, tuple[str, str]], split: str, path: Path) -> np.ndarray:
    key = keys[split][0]
    return check_pixels(_read_array(file, key, path), f"{path}: {key}")


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


def _keys(file: np.lib.npyio.NpzFile, path: Path) -> dict[str, tuple[str, str]]:
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
    return keys


def _read_array(file: np.lib.npyio.NpzFile, key: str, path: Path) -> np.ndarray:
    try:
        return file[key]
    except DAMAGED as error:
        raise UserError(f"{path}: {key} cannot be read: {error}") from error


def _labels(
    file: np.lib.npyio.NpzFile, keys: dict[str, tuple[str, str]], split: str, path: Path
) -> tuple[np.ndarray | None, list[str] | None]:
    """The split's labels (N,) as positions in the classes of all splits together, or (N, K) int8 of several classes."""
    raw = {s: _raw_labels(file, y_key, path) for s, (_, y_key) in keys.items() if y_key in file.files}
    if split not in raw:
        return None, None
    if _are_one_hot(raw.values()):
        say.warn(f"{path}: its labels have one 1 in each row, and are read as one class an image", stacklevel=1)
        raw = {s: labels.argmax(1) for s, labels in raw.items()}
    if any(labels.ndim == 2 for labels in raw.values()):
        return _several(file, raw, split, path)
    if "classes" in file.files and raw[split].dtype.kind in "iu":
        return _labels_with_names(raw[split], _read_array(file, "classes", path), f"{path}: {keys[split][1]}")
    of_value = classes_of_splits({s: dict(_count_labels(labels)) for s, labels in raw.items()}, str(path))
    classes = sorted({label for label in of_value.values() if label is not None})
    number = {None: -1, **{label: number for number, label in enumerate(classes)}}
    values, rows = np.unique(raw[split], return_inverse=True)
    numbers = np.array([number[of_value[value]] for value in values.tolist()], np.int64)
    return numbers[rows], list(map(str, classes))


def _count_labels(labels: np.ndarray) -> list[tuple[Any, int]]:
    """Each label, and how often it occurs."""
    values, counts = np.unique(labels, return_counts=True)
    return list(zip(values.tolist(), counts.tolist(), strict=True))


def _are_one_hot(labels: Iterable[np.ndarray]) -> bool:
    """Return whether all labels are rows of zeros with a single 1: one class an image, written as columns."""
    return all(matrix.ndim == 2 and np.isin(matrix, (0, 1)).all() and (matrix.sum(1) == 1).all() for matrix in labels)


def _raw_labels(file: np.lib.npyio.NpzFile, key: str, path: Path) -> np.ndarray:
    labels = _read_array(file, key, path)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2 and labels.dtype.kind in "iub":
        return labels
    if labels.ndim == 2 and labels.dtype.kind == "f" and (np.isin(labels, (-1, 0, 1)) | np.isnan(labels)).all():
        return labels
    if labels.ndim == 1 and labels.dtype.kind == "f":
        return _whole(labels, f"{path}: {key}")
    if labels.ndim != 1 or labels.dtype.kind not in "iubU":
        raise UserError(
            f"{path}: {key} is {labels.dtype} {labels.shape}; labels are (N,) integers or strings, or (N, K) of 0 and 1"
        )
    return labels


def _whole(labels: np.ndarray, where: str) -> np.ndarray:
    """Floats as the whole numbers that they are, -1 for NaN. Raises UserError for others."""
    labelled = ~np.isnan(labels)
    wrong = labels[labelled & ~(np.isfinite(labels) & (labels == np.floor(labels)))]
    if len(wrong):
        raise UserError(
            f"{where} holds numbers such as {wrong[0]:g}, which are no classes: labels are whole or strings"
        )
    return np.where(labelled, labels, -1).astype(np.int64)


def _several(
    file: np.lib.npyio.NpzFile, raw: dict[str, np.ndarray], split: str, path: Path
) -> tuple[np.ndarray, list[str]]:
    """The split's labels (N, K) int8: 1 (yes), -1 (no), 0 (not known), and the names of the K classes."""
    shapes = {labels.shape[1:] for labels in raw.values()}
    if len(shapes) > 1:
        raise UserError(f"{path}: the labels of its splits are of different shapes: {', '.join(map(str, shapes))}")
    labels = raw[split]
    if (wrong := labels[~(np.isin(labels, (-1, 0, 1)) | (labels != labels))]).size:
        raise UserError(f"{path}: labels (N, K) are 1 for yes and 0 for no (or -1 for no); got {wrong[0]}")
    no = _value_of_no(file, raw.values(), path)
    labels = np.where(labels == 1, 1, np.where(labels == no, -1, 0))
    names = _read_array(file, "classes", path) if "classes" in file.files else np.arange(labels.shape[1])
    if names.shape != labels.shape[1:]:
        raise UserError(f"{path}: classes has shape {names.shape}, but the labels are of {labels.shape[1]} classes")
    return labels.astype(np.int8), [str(name) for name in names]


def _value_of_no(file: np.lib.npyio.NpzFile, labels: Collection[np.ndarray], path: Path) -> int:
    """The value of the labels (N, K) of all splits that means no. Raises UserError where it may be -1 or 0."""
    there = [value for value in (-1, 0) if any((values == value).any() for values in labels)]
    if _NOT_KNOWN in file.files:
        not_known = _read_array(file, _NOT_KNOWN, path)
        if not_known.size != 1 or not_known.item() not in (-1, 0):
            raise UserError(f"{path}: {_NOT_KNOWN} is {not_known.tolist()}; it is the label that means so, -1 or 0")
        return -1 - int(not_known.item())
    if there == [-1, 0]:
        raise UserError(
            f"{path}: its labels are -1, 0 and 1, and either -1 is no and 0 not known, as in VOC, or 0 is no and -1 "
            f"not known, as the uncertain ones of CheXpert and MIMIC: add the array {_NOT_KNOWN}, 0 or -1, to the file"
        )
    if there == [-1]:
        say.warn(f"{path}: its labels are 1 and -1, which is read as no", stacklevel=1)
    return there[0] if there else 0


def _labels_with_names(labels: np.ndarray, classes: np.ndarray, where: str) -> tuple[np.ndarray, list[str]]:
    if classes.ndim != 1:
        raise UserError(f"{where}: classes has shape {classes.shape}; it is (C,), the names of the labels")
    if labels.size and not -1 <= int(labels.min()) <= int(labels.max()) < len(classes):
        raise UserError(f"{where} runs from {labels.min()} to {labels.max()}, but there are {len(classes)} classes")
    warn_of_negative(_count_labels(labels), where)
    return labels, [str(name) for name in classes]
