"""The values of columns, and of patterns of names: checked, numbered, and divided by them; see `data.columns`."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from sslkit.data.columns import NO, YES, Columns, has_value, is_pattern
from sslkit.data.row_filter import OPTION, Cells, rows_kept
from sslkit.data.sources.class_names import list_names
from sslkit.data.sources.split_words import split_by_yes_or_no, split_of, usual
from sslkit.errors import UserError, nearest
from sslkit.terminal import say
from sslkit.terminal.say import counted

_UNDECIDED = frozenset(("-1", "-1.0"))
_NONE = frozenset(("", "nan", "none", "null"))
_SHOWN = 8  # folds in a message


def pattern_of(option: str, word: str) -> re.Pattern[str]:
    """The compiled pattern. Raises UserError for one that is none, or has no group."""
    try:
        pattern = re.compile(word)
    except re.error as error:
        raise UserError(f"{option}={word!r} is no pattern: {error}") from error
    if not pattern.groups:
        raise UserError(f"{option}={word!r} has no group: put parentheses round what is the value, as in '^(p[0-9]+)_'")
    return pattern


def values_of_names(option: str, word: str, names: Sequence[str], where: str) -> list[str | None]:
    """The value in each name, None for a name that the pattern does not match; with a line on these.

    Raises UserError for a pattern that matches no name.
    """
    pattern = pattern_of(option, word)
    matches = [pattern.search(name) for name in names]
    values = [match and match[1] for match in matches]
    missing = [name for name, value in zip(names, values, strict=True) if value is None]
    if len(missing) == len(names):
        raise UserError(
            f"{option}={word!r} matches none of {counted(len(names), 'name')} of {where}, such as {names[0]}"
        )
    if missing:
        number = f"{len(missing):,} of {counted(len(names), 'name')}"
        say.warn(f"{where}: {option}={word!r} does not match {number}, such as {missing[0]}", stacklevel=4)
    return values


def check_names(columns: Columns, known: Collection[str], where: str, kind: str = "column") -> None:
    """Raises UserError for a column that is not there. known: the columns of the source."""
    for option, word in columns.of_tables:
        if word not in known:
            raise UserError(f"{option}={word}: {where} has no such {kind}: {nearest(word, sorted(known))}")


def refuse(columns: Columns, where: str, what: str) -> None:
    """Raises UserError for columns of a source that has none. what: its kind, and how they would be given."""
    if named := columns.given or list(columns.words.items()):
        option, word = named[0]
        raise UserError(f"{option}={word}: {where} {what}")


def refuse_found_groups(columns: Columns, where: str) -> None:
    """Raises UserError for groups that are found by pixels, where only names and tables are read."""
    if columns != columns.of_data:
        raise UserError(f"columns.group={columns.group}: {where}, and near-copies are found where images are read")


def refuse_instances(columns: Columns) -> None:
    """Raises UserError for a column of instances, where labels are read."""
    if columns.instance is not None:
        raise UserError(
            f"columns.instance={columns.instance}: only the protocol retrieval reads it (evaluate.py "
            "protocols=[retrieval]); what else is learned or told apart is columns.label"
        )


def refuse_filter(columns: Columns, where: str) -> None:
    """Raises UserError for a filter of rows of what is no table."""
    if columns.where is not None:
        raise UserError(
            f"{OPTION}={columns.where!r}: {where} is no table, whose rows it would choose: name a table of its files, "
            "as .csv, .jsonl or Parquet, or as recipes/look.py writes one"
        )


def filter_rows(columns: Columns, cells: Cells, count: int, where: str) -> list[int]:
    """The rows of a table that are read, with a line on those that are not. cells: of a column by its name.

    Raises UserError for a column that is not there, and for a filter that keeps none.
    """
    if columns.where is None:
        return list(range(count))
    rows = rows_kept(columns.where, cells, where)
    left = f"{count - len(rows):,} of {counted(count, 'row')} left out" if len(rows) < count else "no row is left out"
    say.warn(f"{where}: {OPTION}={columns.where!r}: {left}", stacklevel=6)
    return rows


def check_groups(columns: Columns, of_split: Mapping[str, Sequence[Any]], where: str) -> None:
    """Look at the values of the groups in all splits. of_split: of each image, "train" first.

    A line counts those that stand on both sides of a split. Raises UserError where all are empty, or are one.
    """
    counts = {split: Counter(str(value) for value in values if has_value(value)) for split, values in of_split.items()}
    total, images = sum(counts.values(), Counter()), sum(map(len, of_split.values()))
    word = f"columns.group={columns.group}"
    if not total:
        raise UserError(f"{word}: {where} has no value there for any of {counted(images, 'image')}")
    if len(total) == 1 and images > 1:
        raise UserError(
            f"{word}: all of {counted(total.total(), 'image')} of {where} are of one group, {next(iter(total))}"
        )
    if len(total) == images:
        say.warn(f"{where}: {word} differs for every image, so that no two belong together", stacklevel=4)
    if empty := images - total.total():
        say.warn(
            f"{where}: {word} has no value for {empty:,} of {images:,} images, each a group of its own", stacklevel=4
        )
    learned = next(iter(counts))
    for split in list(counts)[1:]:
        if both := counts[learned].keys() & counts[split].keys():
            inside = sum(counts[split][group] for group in both)
            remark = f"{len(both):,} of {counted(len(counts[split]), 'group')} of {split} are in {learned}, too"
            say.warn(f"{where}: {remark} ({inside:,} of {counts[split].total():,} images): {word}", stacklevel=4)


def refuse_numbers(columns: Columns, what: str) -> None:
    """Raises UserError for labels that are numbers, where only classes are written or learned. what: does so."""
    if columns.reads_numbers:
        raise UserError(f"columns.label_kind=number: {what} classes; finetune and solve learn numbers")


def check_labels(columns: Columns, about: Any, where: str) -> None:
    """Look at the labels that named columns, or a pattern, give the images that are learned from.

    about: labels, multi_labels, numbers and classes of these images, as of `data.images.Identity`. A line says where
    all are of one class, each is of another, or has one of several columns, which classes none has, and where classes
    may be numbers. Raises UserError where none has a class, and for numbers that are all alike.
    """
    if about.numbers is not None:
        _check_numbers(about.numbers, about.classes[0], where)
    elif columns.labels:
        word = f"columns.label={columns.label if isinstance(columns.label, str) else list_names(columns.labels)}"
        _check_classes(columns, about.labels, about.multi_labels, about.classes, word, where)


def _check_numbers(numbers: np.ndarray, name: str, where: str) -> None:
    there = numbers[~np.isnan(numbers)]
    if not len(there):
        raise UserError(f"{name}: no image of {where} that is learned from has a number there")
    if len(numbers) > 1 and np.ptp(there) == 0:
        raise UserError(
            f"{name}: it is {there[0]:g} for all of {counted(len(there), 'image')} of {where} with a number"
        )


def _check_classes(
    columns: Columns,
    labels: np.ndarray | None,
    multi_labels: np.ndarray | None,
    classes: Sequence[str] | None,
    word: str,
    where: str,
) -> None:
    """See `check_labels`. word: the option, for messages."""
    matrix = multi_labels if labels is None else None
    has_label = (matrix != 0).any(1) if matrix is not None else np.zeros(0, bool) if labels is None else labels >= 0
    if not has_label.any():
        raise UserError(f"{word}: no image of {where} that is learned from has a class there")
    if matrix is not None:
        images = (matrix == 1).sum(0)
        if len(columns.labels) > 1 and len(matrix) > 1 and (matrix != 0).all() and ((matrix == 1).sum(1) == 1).all():
            remark = "each image has one of them, and they are read as several labels an image"
            say.warn(f"{where}: {word}: {remark}; a column of the names is one class an image", stacklevel=4)
    else:
        images = np.bincount(labels[has_label], minlength=len(classes))
        numbers = [int(name) for name in classes if name.isdecimal()]
        has_gaps = len(numbers) == len(classes) < 1 + max(numbers, default=0) - min(numbers, default=0)
        if has_gaps and columns.label_kind is None:  # as of an age or a count
            remark = f"its numbers are read as {len(classes):,} classes; columns.label_kind=number reads an amount"
            say.warn(f"{where}: {word}: {remark}", stacklevel=4)
        if len(labels) > 1 and images.max() == 1:
            say.warn(f"{where}: {word} differs for every image, so that no two are of one class", stacklevel=4)
    for name, count in zip(classes, images.tolist(), strict=True):
        if count == has_label.sum() > 1:
            say.warn(f"{where}: {word} is {name} for all of {counted(count, 'image')} with a label", stacklevel=4)
    if missing := [name for name, count in zip(classes, images.tolist(), strict=True) if not count]:
        number = f"{len(missing):,} of {counted(len(classes), 'class')}"
        say.warn(f"{where}: {word}: no image of train has {number}: {list_names(missing)}", stacklevel=4)


def rows_of_splits(words: Sequence[Any], rows: Sequence[str], where: str, columns: Columns) -> dict[str, list[int]]:
    """The rows of each split, "train" first, with a line on those without a word.

    words: of each row. rows: their names, for messages. columns: that say which fold is held out, if one is.
    Raises UserError for a word that is no split, for a fold that no row has, and without rows of train.
    """
    words = words if columns.test_fold is None else _splits_of_folds(words, columns, where)
    of_split: dict[str, list[int]] = {}
    for row, word in enumerate(words):
        if has_value(word):
            split = split_of(str(word)) or split_by_yes_or_no(columns.split_column or "", str(word))
            if split is None:
                name = "COLUMN" if columns.split is None or is_pattern(columns.split) else columns.split
                raise UserError(
                    f"{where}, {rows[row]}: {str(word)[:80]!r} is no split: these are called train, val (or valid, "
                    f"validation, dev) and test; of folds, columns.split={name}:{str(word)[:80]} holds out that one"
                )
            of_split.setdefault(split, []).append(row)
    if nowhere := len(words) - sum(map(len, of_split.values())):
        say.warn(f"{where}: {counted(nowhere, 'file')} without a split left out", stacklevel=5)
    if "train" not in of_split:
        raise UserError(f"{where}: its splits are {', '.join(of_split) or 'empty'}, and there is none to train on")
    return usual(of_split) or {"train": of_split["train"]}


def _splits_of_folds(values: Sequence[Any], columns: Columns, where: str) -> list[str | None]:
    """ "test" for the fold that is held out, "train" for the others, None for a row without one."""
    texts = [_as_number(value) if has_value(value) else None for value in values]
    held_out = _as_number(columns.test_fold)
    if held_out not in texts:
        there = sorted(set(filter(None, texts)))
        shown = f"its values are {list_names(there, _SHOWN)}" if there else "it is empty"
        raise UserError(f"columns.split={columns.split}: no image of {where} has this value there: {shown}")
    return [text and ("test" if text == held_out else "train") for text in texts]


def _as_number(value: Any) -> str:
    """A text; 4.0, as spreadsheets write 4, is that."""
    text = str(value).strip()
    return text.removesuffix(".0") if text.removesuffix(".0").isdecimal() else text


def several_labels(cells: Mapping[str, Sequence[Any]], where: str) -> np.ndarray:
    """Return (N, K) int8 of columns of yes or no: 1 (yes), -1 (no), 0 (not known, an empty cell).

    cells: of each column, in the order of the classes. Raises UserError for other values, and for -1 beside 0 and 1,
    which means no in some sets and not known in others.
    """
    matrix = np.zeros((len(next(iter(cells.values()))), len(cells)), np.int8)
    for number, (column, values) in enumerate(cells.items()):
        texts = ["" if value is None else str(value).strip().lower() for value in values]
        if wrong := next((text for text in texts if text not in YES | NO | _UNDECIDED | _NONE), None):
            raise UserError(f"{where}: its column {column} holds {wrong!r}, and one of a class holds 1 or 0, yes or no")
        if _UNDECIDED.intersection(texts) and NO.intersection(texts):
            raise UserError(
                f"{where}: its column {column} holds -1, 0 and 1, and -1 may be no or not known: leave the cells of "
                "images empty that are not known"
            )
        matrix[:, number] = [1 if text in YES else -1 if text in NO | _UNDECIDED else 0 for text in texts]
    return matrix
