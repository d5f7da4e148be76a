"""The labels in a NumPy archive: one class an image, or several."""

import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.sources.label_texts import labels_in_texts
from sslkit.data.sources.label_values import AS_NUMBERS, classes_of_splits, warn_of_negative
from sslkit.errors import UserError
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
NOT_KNOWN = "not_known"  # the array with the value that is neither yes nor no


def read_array(file: np.lib.npyio.NpzFile, key: str, path: Path) -> np.ndarray:
    try:
        return file[key]
    except DAMAGED as error:
        raise UserError(f"{path}: {key} cannot be read: {error}") from error


def labels_of(
    file: np.lib.npyio.NpzFile, keys: dict[str, tuple[str, str]], split: str, path: Path, named: str | None = None
) -> tuple[np.ndarray | None, list[str] | None]:
    """The split's labels (N,) as positions in the classes of all splits together, or (N, K) int8 of several classes.

    named: the array of labels, if it is named, whose texts may hold several classes each.
    """
    raw = {s: _raw_labels(file, y_key, path) for s, (_, y_key) in keys.items() if y_key in file.files}
    if split not in raw:
        return None, None
    if _are_one_hot(raw.values()):
        say.warn(f"{path}: its labels have one 1 in each row, and are read as one class an image", stacklevel=1)
        raw = {s: labels.argmax(1) for s, labels in raw.items()}
    if any(labels.ndim == 2 for labels in raw.values()):
        return _several(file, raw, split, path)
    if named and all(labels.dtype.kind == "U" for labels in raw.values()):
        texts = {s: labels.tolist() for s, labels in raw.items()}
        if several := labels_in_texts(texts[split], texts, named, str(path)):
            return several["multi_labels"], several["classes"]
    if "classes" in file.files and raw[split].dtype.kind in "iu":
        return _labels_with_names(raw[split], read_array(file, "classes", path), f"{path}: {keys[split][1]}")
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
    labels = read_array(file, key, path)
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
            f"{where} holds numbers such as {wrong[0]:g}, which are no classes: labels are whole or strings; "
            f"{AS_NUMBERS}"
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
    names = read_array(file, "classes", path) if "classes" in file.files else np.arange(labels.shape[1])
    if names.shape != labels.shape[1:]:
        raise UserError(f"{path}: classes has shape {names.shape}, but the labels are of {labels.shape[1]} classes")
    return labels.astype(np.int8), [str(name) for name in names]


def _value_of_no(file: np.lib.npyio.NpzFile, labels: Collection[np.ndarray], path: Path) -> int:
    """The value of the labels (N, K) of all splits that means no. Raises UserError where it may be -1 or 0."""
    there = [value for value in (-1, 0) if any((values == value).any() for values in labels)]
    if NOT_KNOWN in file.files:
        not_known = read_array(file, NOT_KNOWN, path)
        if not_known.size != 1 or not_known.item() not in (-1, 0):
            raise UserError(f"{path}: {NOT_KNOWN} is {not_known.tolist()}; it is the label that means so, -1 or 0")
        return -1 - int(not_known.item())
    if there == [-1, 0]:
        raise UserError(
            f"{path}: its labels are -1, 0 and 1, and either -1 is no and 0 not known, as in VOC, or 0 is no and -1 "
            f"not known, as the uncertain ones of CheXpert and MIMIC: add the array {NOT_KNOWN}, 0 or -1, to the file"
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
