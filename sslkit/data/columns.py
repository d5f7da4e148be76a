"""Where the label, the split and the group of each image are written: in columns, or in the images' names.

A word with a pair of parentheses is a pattern of names, whose first pair holds the value: `^(p[0-9]+)_`. Of splits,
`fold:4` is a column of numbered folds, and the value of those that are held out.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sslkit.errors import UserError
from sslkit.options.settings import setting

NEAR_COPIES = "near-copies"  # of the group: those that are found, see `data.near_groups`
CLASS, NUMBER = KINDS = ("class", "number")  # of a label
_FOLD = ":"  # between a column of folds and the one that is held out
YES, NO = frozenset(("1", "1.0", "true", "yes")), frozenset(("0", "0.0", "false", "no"))  # cells, in small letters
_BYTES = 8  # of a sha256: two of 10^7 groups agree by chance in one of 400,000 data sets


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a table (.csv, .jsonl, metadata of a folder, hf:, Parquet), the keys of .json members of shards,
    the arrays of .npz files or the attributes of a Dataset, by their names; or patterns of the images' names.
    """

    image: str | None = setting(None, "column of the images in a table that holds several; null: the only one")
    label: str | Sequence[str] | None = setting(
        None,
        "column of the label, or [cat,dog], a column of yes or no for each class; or a pattern of names with "
        "parentheses, such as '^([a-z]+)_'; null: that of a usual name, or the folders",
    )
    label_kind: str | None = setting(
        None,
        "of what the labels are: class, or number (regression: finetune, solve); null: classes, whole numbers too, "
        "and a column of decimal ones is not used",
        choices=KINDS,
    )
    split: str | None = setting(
        None,
        "column of train, val and test; or fold:4, a column of folds and the one held out as test; or a pattern of "
        "names; null: that of a usual name, or the folders",
    )
    group: str | None = setting(
        None,
        "column of what stays on one side of a split (patient, slide, film, object), or a pattern of names; or "
        f"{NEAR_COPIES}, which are found by the pixels of all images; null: each image stands alone",
    )
    instance: str | None = setting(
        None,
        "column of the object or place in each image, or a pattern of names: what the protocol retrieval looks for; "
        "null: the label",
    )
    where: str | None = setting(
        None,
        "the rows of a table that are read, such as 'class != blur and width >= 64'; also in (a, b), or, not, "
        "parentheses; null: all",
    )

    def __post_init__(self) -> None:
        if isinstance(self.label, list):
            object.__setattr__(self, "label", tuple(self.label))
        if self.reads_numbers and len(self.labels) > 1:
            raise UserError(f"columns.label_kind={NUMBER} reads one column, and columns.label names {len(self.labels)}")

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of labels."""
        return (self.label,) if isinstance(self.label, str) else tuple(self.label or ())

    @property
    def reads_numbers(self) -> bool:
        """Whether labels are numbers."""
        return self.label_kind == NUMBER

    @property
    def given(self) -> list[tuple[str, str]]:
        """The options of columns and patterns that are given, with their words."""
        labels = (("columns.label", word) for word in self.labels)
        others = ((f"columns.{name}", getattr(self, name)) for name in ("image", "split", "group", "instance"))
        return [*labels, *((option, word) for option, word in others if word is not None)]

    @property
    def words(self) -> dict[str, Any]:
        """The options that are given, as a command line takes them."""
        values = {f"columns.{name}": value for name, value in vars(self).items() if value is not None}
        return {option: list(value) if isinstance(value, tuple) else value for option, value in values.items()}

    @property
    def of_tables(self) -> list[tuple[str, str]]:
        """Those that name columns, and are no patterns, with the columns' names."""
        names = [(option, word) for option, word in self.given if not is_pattern(word)]
        return [(option, self.split_column if option == "columns.split" else word) for option, word in names]

    @property
    def of_data(self) -> "Columns":
        """Those that the data have: without groups that are found."""
        return replace(self, group=None) if self.group == NEAR_COPIES else self

    @property
    def by_instance(self) -> "Columns":
        """Those by which the label of an image is its instance, where one is given."""
        return self if self.instance is None else replace(self, label=self.instance, label_kind=CLASS, instance=None)

    @property
    def needs_table(self) -> list[tuple[str, str]]:
        """The options that only a table can answer, with their words."""
        return [*self.of_tables, *([("columns.where", self.where)] if self.where is not None else [])]

    @property
    def split_column(self) -> str | None:
        """The column of splits, or the pattern of names."""
        return self.split if self.split is None or is_pattern(self.split) else self.split.partition(_FOLD)[0]

    @property
    def test_fold(self) -> str | None:
        """The value in the column of splits that is held out as test; all others are train. None: the values say it."""
        return None if self.split is None or is_pattern(self.split) else self.split.partition(_FOLD)[2] or None

    @property
    def label_column(self) -> str | None:
        """The only column of labels that is named, whose texts may hold several classes each."""
        return None if len(self.labels) != 1 or is_pattern(self.labels[0]) else self.labels[0]


NO_COLUMNS = Columns()
OPTIONS = tuple(f"columns.{name}" for name in vars(NO_COLUMNS))


def is_pattern(word: str | None) -> bool:
    """Return whether the word of an option is a pattern of names."""
    return word is not None and "(" in word


def group_numbers(values: Sequence[Any], names: Sequence[str]) -> np.ndarray:
    """Return numbers (N,) int64, equal for equal values, in every split and on every machine.

    An image without a value, None or "", is a group of its own. names: (N,) of the images.
    """
    texts = (
        f"value {value}" if has_value(value) else f"name {name}" for value, name in zip(values, names, strict=True)
    )
    digests = (hashlib.sha256(text.encode(errors="surrogateescape")).digest()[:_BYTES] for text in texts)
    return np.array([int.from_bytes(digest, "little", signed=True) for digest in digests], np.int64)


def has_value(value: Any) -> bool:
    """Return whether a cell says something."""
    return value is not None and value == value and str(value).strip() != ""
