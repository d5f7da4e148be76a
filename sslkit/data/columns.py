"""Where the label, the split and the group of each image are written: in columns, or in the images' names.

A word with a pair of parentheses is a pattern of names, whose first pair holds the value: `^(p[0-9]+)_`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sslkit.options.settings import setting

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
    split: str | None = setting(
        None, "column of train, val and test, or a pattern of names; null: that of a usual name, or the folders"
    )
    group: str | None = setting(
        None,
        "column of what stays on one side of a split (patient, slide, film, object), or a pattern of names; null: each "
        "image stands alone",
    )

    def __post_init__(self) -> None:
        if isinstance(self.label, list):
            object.__setattr__(self, "label", tuple(self.label))

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of labels."""
        return (self.label,) if isinstance(self.label, str) else tuple(self.label or ())

    @property
    def given(self) -> list[tuple[str, str]]:
        """The options that are given, with their words."""
        labels = (("columns.label", word) for word in self.labels)
        others = ((f"columns.{name}", getattr(self, name)) for name in ("image", "split", "group"))
        return [*labels, *((option, word) for option, word in others if word is not None)]

    @property
    def words(self) -> dict[str, Any]:
        """The options that are given, as a command line takes them."""
        values = {f"columns.{name}": value for name, value in vars(self).items() if value is not None}
        return {option: list(value) if isinstance(value, tuple) else value for option, value in values.items()}

    @property
    def of_tables(self) -> list[tuple[str, str]]:
        """Those that name columns, and are no patterns."""
        return [(option, word) for option, word in self.given if not is_pattern(word)]


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
