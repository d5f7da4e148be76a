"""The labels of a Dataset of a Python program."""

from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset
from tqdm import tqdm

from sslkit.data.columns import Columns, group_numbers, is_pattern
from sslkit.data.decode.unreadable import UnreadableImage
from sslkit.data.file_contents import bar_is_off
from sslkit.data.row_filter import OPTION
from sslkit.data.sources.column_values import check_groups, filter_rows, refuse, several_labels
from sslkit.data.sources.label_numbers import numbers_in_values
from sslkit.data.sources.label_texts import labels_in_texts
from sslkit.data.sources.label_values import Measured, classes_of
from sslkit.errors import UserError
from sslkit.terminal import say

_LOOKED_AT = 8  # rows whose labels are compared: a round number; labels of another set differ in the first few


def facts_of_dataset(dataset: Any, item: Callable[[int], Any], name: str, columns: Columns) -> dict[str, Any]:
    """Labels, classes and groups of a data set, as of `data.images.Identity`.

    columns: names of its attributes, each a value for every item. item: reads one, and raises UnreadableImage.
    Raises UserError for an attribute that is not there, or is of another length.
    """
    if columns.split is not None or columns.image is not None:
        refuse(Columns(split=columns.split, image=columns.image), name, "is a Dataset, one split of images: give each")
    cells = {word: _attribute(dataset, option, word, name) for option, word in columns.given}
    about: dict[str, Any] = {}
    if columns.group is not None:
        values = cells[columns.group]
        check_groups(columns, {"train": values}, name)
        about["groups"] = group_numbers(values, list(map(str, range(len(values)))))
    if len(columns.labels) > 1:
        several = {word: cells[word] for word in columns.labels}
        return about | {"multi_labels": several_labels(several, name), "classes": list(several)}
    values = next((cells[word] for word in columns.labels), None)
    if columns.reads_numbers:
        return about | numbers_of(dataset, item, name, columns, values)
    are_texts = values and all(isinstance(value, (str, NoneType)) for value in values)
    if are_texts and (several := labels_in_texts(values, {"train": values}, columns.labels[0], name)):
        return about | several
    labels, classes = labels_of(dataset, item, name, columns, values)
    return about | {"labels": labels, "classes": classes}


def filter_dataset(dataset: Any, columns: Columns, name: str) -> Any:
    """The items that are read, see `column_values.filter_rows`; its columns are attributes."""
    if columns.where is None:
        return dataset
    rows = filter_rows(columns, lambda word: _attribute(dataset, OPTION, word, name), len(dataset), name)
    return Subset(dataset, rows)


def _attribute(dataset: Any, option: str, word: str, name: str) -> list[Any]:
    """The values of an attribute, of all items; through Subset and ConcatDataset, too."""
    if is_pattern(word):
        raise UserError(
            f"{option}={word!r}: the items of {name} have no names; an attribute holds a value for each item"
        )
    if isinstance(dataset, Subset):
        inner = _attribute(dataset.dataset, option, word, name)
        return [inner[index] for index in dataset.indices]
    if isinstance(dataset, ConcatDataset):
        return [value for inner in dataset.datasets for value in _attribute(inner, option, word, name)]
    values = getattr(dataset, word, None)
    if values is None or not hasattr(values, "__len__"):
        raise UserError(f"{option}={word}: {name} has no attribute {word!r} with a value for each item")
    if len(values) != len(dataset):
        raise UserError(f"{option}={word}: {name} has {len(dataset):,} items, and {len(values):,} values there")
    return [_plain(value) for value in values]


def labels_of(
    dataset: Any, item: Callable[[int], Any], name: str, columns: Columns, given: list[Any] | None = None
) -> tuple[np.ndarray | None, list[str] | None]:
    """labels (N,) int64, -1 for none, and the names of the classes; None without labels.

    Those of a list in the data set are used unless some items have others; then those of all items, with a warning.
    item: reads one, and raises UnreadableImage. name: of the data set, in warnings. given: the labels to use.
    """
    values = _values(dataset, item, name, given)
    if values is None:
        return None, None
    other = next((value for value in values if not isinstance(value, (int, float, str, NoneType))), None)
    try:
        of_value = classes_of(values, name) if other is None else {}
    except Measured as error:
        error.tell("its labels are", name, columns)
        return None, None
    if other is not None:
        problem = f"of {type(other).__name__}, which are no classes, and not used"
        say.warn(f"{name}: its labels are {problem}", stacklevel=4)
        return None, None
    classes = sorted({label for label in of_value.values() if label is not None})
    if not classes:
        return None, None
    named = _names(dataset, classes)
    number = {
        None: -1,
        **({label: label for label in classes} if named else {label: k for k, label in enumerate(classes)}),
    }
    return np.array([number[of_value[value]] for value in values], np.int64), named or list(map(str, classes))


def numbers_of(
    dataset: Any, item: Callable[[int], Any], name: str, columns: Columns, given: list[Any] | None = None
) -> dict[str, Any]:
    """The numbers of a data set, as of `data.images.Identity`; {} without labels. Arguments as of `labels_of`."""
    values = _values(dataset, item, name, given)
    names = [f"item {row}" for row in range(len(values or ()))]
    return {} if values is None else numbers_in_values(values, names, columns, name)


def _values(dataset: Any, item: Callable[[int], Any], name: str, given: list[Any] | None) -> list[Any] | None:
    """The label of each item as it is, see `labels_of`; None without labels."""
    values = _targets(dataset) if given is None else given
    if given is None and values is not None and (row := _other_label(item, values)) is not None:
        problem = (
            f"the label of its item {row} is not the one in its list of labels: those of the items are read and used"
        )
        say.warn(f"{name}: {problem}", stacklevel=4)
        values = None
    return _labels_of_items(item, len(dataset)) if values is None else values


def _names(dataset: Any, classes: Sequence[Any]) -> list[str] | None:
    """The data set's own names of its classes, if these are numbers of them."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    whole = all(isinstance(label, int) and not isinstance(label, bool) for label in classes)
    return list(map(str, names)) if isinstance(names, (list, tuple)) and whole and classes[-1] < len(names) else None


def _targets(dataset: Any) -> list[Any] | None:
    """The label of each item without reading it, if the data set has a list of them."""
    if isinstance(dataset, Subset):
        inner = _targets(dataset.dataset)
        return None if inner is None else [inner[index] for index in dataset.indices]
    if isinstance(dataset, ConcatDataset):
        each = [_targets(subset) for subset in dataset.datasets]
        return None if None in each else [value for labels in each for value in labels]
    for key in ("targets", "labels"):
        values = getattr(dataset, key, None)
        if values is not None and hasattr(values, "__len__") and len(values) == len(dataset):
            change = getattr(dataset, "target_transform", None) or (lambda value: value)
            try:
                return [_plain(change(value)) for value in values]
            except Exception:  # it changes something else: the items tell
                return None
    return None


def _other_label(item: Callable[[int], Any], values: Sequence[Any]) -> int | None:
    """The first of some rows whose item has another label than the list; None if none is found."""
    for row in dict.fromkeys(np.linspace(0, len(values) - 1, _LOOKED_AT, dtype=int).tolist()):
        try:
            entry = item(row)
        except UnreadableImage:
            continue
        if isinstance(entry, (tuple, list)) and len(entry) > 1 and _is_other(_plain(entry[1]), values[row]):
            return row
    return None


def _is_other(one: Any, other: Any) -> bool:
    """Return whether two labels differ and are both numbers or both texts; a list may hold the names of numbers."""
    alike = any(isinstance(one, kind) and isinstance(other, kind) for kind in (str, (int, float)))
    return alike and one == one and other == other and one != other


def _labels_of_items(item: Callable[[int], Any], count: int) -> list[Any] | None:
    """The second part of every item; None if the first that can be read has none."""
    labels: list[Any] = []
    for row in tqdm(range(count), desc="labels", unit="image", delay=2, disable=bar_is_off()):
        try:
            entry = item(row)
        except UnreadableImage:
            labels.append(None)
            continue
        if not (isinstance(entry, (tuple, list)) and len(entry) > 1):
            return None
        labels.append(_plain(entry[1]))
    return labels


def _plain(value: Any) -> Any:
    """A label as a Python number or text."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    return value.item() if isinstance(value, (np.generic, np.ndarray)) and value.size == 1 else value
