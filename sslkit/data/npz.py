"""Images from a NumPy archive."""

import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from sslkit.data.arrays import ArrayImages, to_nchw, to_uint8
from sslkit.data.images import Identity, ImageOptions, check_split
from sslkit.errors import UserError

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
_KEYS = {  # split -> the pairs of keys that may hold its images and labels
    "train": (("x_train", "y_train"), ("x", "y"), ("images", "labels")),
    "val": (("x_val", "y_val"), ("x_valid", "y_valid")),
    "test": (("x_test", "y_test"),),
}


def splits_of_npz(path: Path) -> tuple[str, ...]:
    """The splits named by the file's keys. Raises UserError if there are none."""
    with _load(path) as file:
        return tuple(_keys(file, path))


def open_npz(path: Path, options: ImageOptions) -> ArrayImages:
    """Images (N, H, W), (N, H, W, C) or (N, C, H, W) and labels (N,), integers or names.

    Labels (N, K) of 1 and 0 are those of several classes an image: 1 (yes), 0 (no); if some are -1, these are the no,
    and 0 is not known.
    Keys: x_train, y_train, x_test, y_test (x_val, y_val), or x, y, or images, labels; labels and `classes`,
    the names of the labels, may be missing. Pickled objects are refused.
    Raises UserError for other keys, types, ranges, shapes, and for NaN pixels.
    """
    with _load(path) as file:
        keys = _keys(file, path)
        check_split(str(path), options.split, tuple(keys))
        x_key, _ = keys[options.split]
        where = f"{path}: {x_key}"
        pixels = to_nchw(to_uint8(_read(file, x_key, path), where), where)
        labels, classes = _labels(file, keys, options.split, path)
    named = {"classes": classes, "labels" if labels is None or labels.ndim == 1 else "multi_labels": labels}
    identity = Identity(path.stem, path, tuple(keys), **named)
    return ArrayImages(pixels, identity, options)


def _load(path: Path) -> np.lib.npyio.NpzFile:
    try:
        file = np.load(path, allow_pickle=False)
    except DAMAGED as error:
        raise UserError(f"{path} is not a readable .npz file: {error}") from error
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise UserError(f"{path} holds one bare array; write it with numpy.savez(path, x=images, y=labels)")
    return file


def _keys(file: np.lib.npyio.NpzFile, path: Path) -> dict[str, tuple[str, str]]:
    found = {}
    for split, pairs in _KEYS.items():
        present = [pair for pair in pairs if pair[0] in file.files]
        if present:
            found[split] = present[0]
    if not found:
        raise UserError(
            f"{path} has the keys {', '.join(file.files) or '(none)'}; images are looked for under x_train and "
            f"x_test, x, or images, and labels under y_train and y_test, y, or labels"
        )
    return found


def _read(file: np.lib.npyio.NpzFile, key: str, path: Path) -> np.ndarray:
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
    if any(labels.ndim == 2 for labels in raw.values()):
        return _several(file, raw, split, path)
    if "classes" in file.files and raw[split].dtype.kind in "iu":
        return _named(raw[split], _read(file, "classes", path), f"{path}: {keys[split][1]}")
    values = np.unique(np.concatenate(list(raw.values())))
    if values.dtype.kind in "iu":
        values = values[values >= 0]  # -1 marks rows without a label
    labels = np.searchsorted(values, raw[split])
    if values.dtype.kind in "iu":
        labels[raw[split] < 0] = -1
    return labels, [str(value) for value in values]


def _raw_labels(file: np.lib.npyio.NpzFile, key: str, path: Path) -> np.ndarray:
    labels = _read(file, key, path)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2 and labels.dtype.kind in "iub":
        return labels
    if labels.ndim != 1 or labels.dtype.kind not in "iuU":
        raise UserError(
            f"{path}: {key} is {labels.dtype} {labels.shape}; labels are (N,) integers or strings, or (N, K) of 0 and 1"
        )
    return labels


def _several(
    file: np.lib.npyio.NpzFile, raw: dict[str, np.ndarray], split: str, path: Path
) -> tuple[np.ndarray, list[str]]:
    """The split's labels (N, K) int8: 1 (yes), -1 (no), 0 (not known), and the names of the K classes."""
    shapes = {labels.shape[1:] for labels in raw.values()}
    if len(shapes) > 1:
        raise UserError(f"{path}: the labels of its splits are of different shapes: {', '.join(map(str, shapes))}")
    labels = raw[split].astype(np.int64)
    if not np.isin(labels, (-1, 0, 1)).all():
        raise UserError(f"{path}: labels (N, K) are 1 for yes and 0 for no (or -1 for no); got {labels.max()}")
    if not any((one == -1).any() for one in raw.values() if one.dtype.kind == "i"):
        labels = np.where(labels == 1, 1, -1)
    names = _read(file, "classes", path) if "classes" in file.files else np.arange(labels.shape[1])
    if names.shape != labels.shape[1:]:
        raise UserError(f"{path}: classes has shape {names.shape}, but the labels are of {labels.shape[1]} classes")
    return labels.astype(np.int8), [str(name) for name in names]


def _named(labels: np.ndarray, classes: np.ndarray, where: str) -> tuple[np.ndarray, list[str]]:
    if classes.ndim != 1:
        raise UserError(f"{where}: classes has shape {classes.shape}; it is (C,), the names of the labels")
    if labels.size and not -1 <= int(labels.min()) <= int(labels.max()) < len(classes):
        raise UserError(f"{where} runs from {labels.min()} to {labels.max()}, but there are {len(classes)} classes")
    return labels, [str(name) for name in classes]
