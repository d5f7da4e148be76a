"""as_sample: arrays, tensors or `Features` -> the checked `Sample` of the metrics."""

import math
import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evaluation.features.checks import is_no_label, of_column, of_one_hot, refuse_holes
from evaluation.transferability.base import Sample, check_seed
from sslkit.errors import UserError, format_value
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of
from sslkit.terminal import say

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
CHECKED = 65536  # rows checked at a time: with 2,048 features a gigabyte in float64
ON_CPU = Runtime(device="cpu")


def as_sample(
    features: Any,
    labels: Any = None,
    *,
    source_probs: Any = None,
    reference: Any = None,
    model: Any = None,
    untrained: Any = None,
    boxes: Any = None,
    runtime: Runtime = ON_CPU,
) -> Sample:
    """Make the checked input of a metric.

    features: (N, D) numpy, torch, or nested lists, any float type; or `Features`, whose labels are taken if `labels`
        is None (of several labels an image as 1 for yes, and 0 for no and for what does not count), and whose groups
        stay together; or None, for metrics that need none.
    labels: (N,) any hashable values, each value a class; or numbers (N,), (N, K) for regression and multi-label tasks.
    source_probs: (N, S) probabilities of the source classifier; rows must sum to 1 within 0.001 and are divided by
        their sum.
    reference: mean (D,) and std (D,) of the same model's features on its training images.
    untrained: (N, E) features of the same network with random weights, for the same images.
    boxes: (N, 4) of the objects in their whole images, see `Split`; rows of nan for images of no object.
    runtime: its device computes; its seed is from 0 to 2**32 - 1.
    Raises UserError for NaN, shapes that do not match, fewer than two images or classes, an unavailable device.
    """
    seed = check_seed(runtime.seed)
    device = torch.device("cpu") if runtime.device == "cpu" else device_of(runtime.device)  # the CPU is always there
    groups = None
    if labels is None and hasattr(features, "labelled"):  # Features, whose module need not be imported for arrays
        features = features.labelled()
        labels = _yes_or_no(features.y) if features.y.ndim == 2 else features.y
        groups = _groups(features.groups, device)
    x, largest = (None, None) if features is None else _features(getattr(features, "x", features))
    x = None if x is None else x.to(device)
    y, classes, targets = _labels(labels)
    n = len(y if y is not None else targets)
    rows = {"features": x, "source_probs": source_probs, "untrained": untrained, "boxes": boxes}
    for what, values in rows.items():
        if values is not None and np.ndim(values) == 0:
            raise UserError(f"{what} must have a row for each of the {n} labels, got {format_value(values)}")
        if values is not None and len(values) != n:
            raise UserError(f"{len(values)} rows of {what} and {n} labels")
    if n < 2:
        raise UserError(f"a transferability score needs at least 2 images, not {n}")
    if y is not None and len(classes) < 2:
        raise UserError(f"all {n} labels are {classes[0]!r}: a transferability score needs at least 2 classes")
    return Sample(
        x,
        None if y is None else y.to(device),
        None if targets is None else targets.to(device),
        classes,
        None if source_probs is None else _probabilities(source_probs).to(device),
        None if reference is None else tuple(statistic.to(device) for statistic in _reference(reference, x)),
        model,
        None if untrained is None else _features(getattr(untrained, "x", untrained))[0].to(device),
        None if boxes is None else _boxes(boxes).to(device),
        groups,
        seed,
        dim=0 if x is None else x.shape[1],
        largest=largest,
    )


def _groups(groups: np.ndarray | None, device: torch.device) -> Tensor | None:
    if groups is None:
        return None
    numbers = torch.from_numpy(np.unique(groups, return_inverse=True)[1]).to(device)
    if not numbers.any():
        raise UserError(f"all {len(groups)} images are of one group, or file: at least two are needed to judge any")
    return numbers


def _yes_or_no(y: np.ndarray) -> np.ndarray:
    """(N, K) 1, -1, and 0 for what does not count, as 1, 0 and 0, with a warning: a score knows no third answer."""
    if ignored := float((y == 0).mean()):
        meaning = f"-1 is read as no, and {ignored:.1%} of the labels, 0, do not count"
        say.warn(f"of labels -1, 0 and 1 {meaning}; a score takes both as no", stacklevel=3)
    return (y > 0).astype(np.float64)


def _boxes(boxes: Any) -> Tensor:
    corners = _tensor(boxes, "boxes").double()
    if corners.dim() != 2 or corners.shape[1] != 4:
        raise UserError(f"boxes must be (N, 4): left, upper, right, lower; not {tuple(corners.shape)}")
    return corners


def _tensor(values: Any, what: str) -> Tensor:
    if type(values) is not np.ndarray:  # plain arrays have a number in each place
        refuse_holes(values, what)
    if isinstance(values, Tensor):
        if values.is_complex():
            raise UserError(f"{what} must be real numbers, not {values.dtype}")
        return values.detach()
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UserError(f"{what} must be an array of numbers, its rows of one length: {error}") from error
    if array.dtype.kind not in "fiub":
        raise UserError(f"{what} must be numbers, not {array.dtype}")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):  # which torch cannot read
        array = array.copy()
    with warnings.catch_warnings():  # of a memory map: torch cannot mark a tensor as read-only, and nothing here writes
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def _features(values: Any) -> tuple[Tensor, float]:
    """Return checked rows (N, D) and their largest magnitude."""
    x = _tensor(values, "features")
    x = x if x.dtype in FLOATS else x.double()
    if x.ndim != 2 or 0 in x.shape:
        raise UserError(f"features must be (N, D) with at least one row and one column, not {tuple(x.shape)}")
    largest = 0.0
    for start in range(0, len(x), CHECKED):  # in blocks: the rows may lie on the disk
        block = x[start : start + CHECKED]
        ends = [float(end) for end in torch.aminmax(block)]  # NaN if there is one
        if not all(map(math.isfinite, ends)):
            row = start + int((~torch.isfinite(block).all(1)).nonzero()[0])
            raise UserError(f"features are NaN or infinite, the first in row {row}: was the model sound?")
        largest = max(largest, *map(abs, ends))
    return x, largest


def _labels(labels: Any) -> tuple[Tensor | None, tuple[str, ...], Tensor | None]:
    """Return labels as classes (or None), the names of the classes, and labels as numbers (None for names).

    One-hot labels are classes and numbers. Other labels of several columns, and fractions, are numbers only.
    """
    if labels is None:
        raise UserError("labels are missing: give (N,) labels, or Features, which have their own")
    if not isinstance(labels, (np.ndarray, Tensor, Iterable)) or getattr(labels, "ndim", 1) == 0:
        raise UserError(f"labels must be one for each image, (N,), got {format_value(labels)}")
    if type(labels) is not np.ndarray:
        refuse_holes(labels, "labels")
    array = _as_array(labels)
    array = of_column(array) if array.ndim == 2 else array
    numbers = None
    if array.dtype.kind in "fiub":
        if not np.isfinite(array).all():
            raise UserError("some labels are NaN or infinite; leave these rows out")
        numbers = torch.from_numpy(array.reshape(len(array), -1).astype(np.float64))
    if array.ndim == 2 and numbers is not None:
        if (classes := of_one_hot(array)) is None:
            yes_or_no = array.shape[1] > 1 and set(np.unique(array).tolist()) in ({-1, 1}, {-1, 0, 1})
            return None, (), torch.from_numpy(_yes_or_no(array)) if yes_or_no else numbers
        array = classes
    if array.ndim != 1:
        raise UserError(f"labels must be (N,), or numbers (N, K), not of shape {array.shape}")
    if array.dtype.kind == "f" and (array != np.rint(array)).any():
        return None, (), numbers
    if array.dtype.kind in "fi" and array.min() == -1 and len(np.unique(array)) > 2:
        missing = int((array == -1).sum())
        raise UserError(
            f"{missing} of {len(array)} labels are -1 (no label); leave these rows out with x[y >= 0], y[y >= 0], or "
            "number the classes from 0 if -1 is one"
        )
    y, names = _number_labels(array)
    return torch.from_numpy(y), names, numbers


def _as_array(labels: Any) -> np.ndarray:
    """Convert labels to an array: numbers stay, other values become objects; a tuple is one label."""
    if isinstance(labels, np.ndarray):
        return labels
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu()
        return (labels.float() if labels.dtype == torch.bfloat16 else labels).numpy()  # numpy has no bfloat16
    values: Sequence[Hashable] = list(labels)
    if all(isinstance(label, (bool, int, float, np.number)) for label in values):
        return np.asarray(values)
    if values and all(isinstance(label, (list, np.ndarray, Tensor)) for label in values):
        try:
            return np.asarray(values)
        except ValueError as error:
            raise UserError(f"labels of several columns must have rows of one length: {error}") from error
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _number_labels(array: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return class indices 0 to C - 1 in the order of the values, or of their names if these cannot be sorted."""
    if array.dtype.kind in "fiubUS":
        values, y = np.unique(array, return_inverse=True)
        return y.astype(np.int64), tuple(str(value) for value in values)
    labels = array.tolist()
    if any(map(is_no_label, labels)):
        raise UserError("some labels are None or NaN; leave these rows out")
    try:
        values = sorted(set(labels), key=lambda label: (type(label).__name__, str(label)))
    except TypeError as error:
        raise UserError(f"labels must be hashable: {error}") from error
    index = {value: k for k, value in enumerate(values)}
    return np.array([index[label] for label in labels], dtype=np.int64), tuple(str(value) for value in values)


def _probabilities(values: Any) -> Tensor:
    p = _tensor(values, "source_probs").double()
    if p.ndim != 2 or 0 in p.shape:
        raise UserError(f"source_probs must be (N, S), not {tuple(p.shape)}")
    if not torch.isfinite(p).all() or (p < 0).any():
        raise UserError("source_probs must be finite and not below 0: give probabilities (softmax), not logits")
    sums = p.sum(1, keepdim=True)
    off = (sums - 1).abs()
    if off.max() > 1e-3:
        row, total = int(off.argmax()), float(sums[off.argmax()])
        raise UserError(f"row {row} of source_probs sums to {total:.4g}, not 1: give probabilities, not logits")
    return p / sums


def _reference(given: Any, x: Tensor | None) -> tuple[Tensor, Tensor]:
    try:
        mean, std = (_tensor(statistic, "reference").double() for statistic in given)
    except (TypeError, ValueError) as error:
        raise UserError("reference must be a pair of arrays: mean (D,), std (D,)") from error
    width = None if x is None else x.shape[1]
    if mean.shape != std.shape or mean.ndim != 1 or width not in (None, len(mean)):
        shapes = f"mean {tuple(mean.shape)} and std {tuple(std.shape)}"
        raise UserError(f"reference has {shapes}, features have {width} columns")
    if not (torch.isfinite(mean).all() and torch.isfinite(std).all() and (std >= 0).all()):
        raise UserError("reference must be finite, and its std not negative")
    return mean, std
