"""Several classes in one text, as `cat|dog` or `[1, 4]`, of a column of labels that is named."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sslkit.data.columns import has_value
from sslkit.data.sources.class_names import in_order, match_classes
from sslkit.data.sources.label_lists import LabelLists
from sslkit.terminal import say

_ALWAYS = "|"  # in no name of a class
_OFTEN = (";", ",")  # in some: "missile, projectile"
_BLANK = " "  # in many: "polar bear"
_NAMES = {_ALWAYS: "'|'", ";": "';'", ",": "commas", _BLANK: "blanks"}
_NOTHING = frozenset(("nan", "none", "null"))


def separator_of(texts: Iterable[Any]) -> str | None:
    """The sign between the classes in one text; None where each text is one class, and for values that are no texts.

    `|` is one wherever it stands, a comma in brackets, too. A semicolon or a comma is one if most texts that have it
    consist of names that stand in other texts as well; a blank, if each of its names is also a text of its own.
    """
    different = {text.strip() for text in texts if isinstance(text, str)}
    if any(_ALWAYS in text for text in different):
        return _ALWAYS
    if any(_is_list(text) for text in different):
        return ","
    for sign in _OFTEN:
        pieces = {text: set(pieces_of(text, sign)) for text in different}
        uses = Counter(piece for some in pieces.values() for piece in some)
        several = [some for some in pieces.values() if len(some) > 1]
        if 2 * sum(min(uses[piece] for piece in some) > 1 for some in several) > len(several):
            return sign
    several = [pieces for text in different if len(pieces := text.split()) > 1]
    return _BLANK if several and all(piece in different for pieces in several for piece in pieces) else None


def pieces_of(text: str, separator: str) -> list[str]:
    """The classes in a text, [] for empty brackets."""
    inner = text.strip()[1:-1] if _is_list(text) else text
    words = (word.strip(" '\"") for word in inner.split(separator))
    return list(dict.fromkeys(word for word in words if word))


def labels_in_texts(
    values: Sequence[Any], of_splits: Mapping[str, Iterable[Any]], column: str, where: str
) -> dict[str, Any] | None:
    """multi_labels (N, K) int8, as of `data.images.Identity`, and classes; None where each text is one class.

    values: (N,) of a split, None or "" where they are not known. of_splits: those of all splits, "train" first, whose
    classes are numbered together. column, where: of the data, for a line that says how the texts are read.
    """
    different = {split: {value for value in some if _is_known(value)} for split, some in of_splits.items()}
    separator = separator_of(value for some in different.values() for value in some)
    if separator is None:
        return None
    pieces = {text: pieces_of(str(text), separator) for some in different.values() for text in some}
    names = {split: {name for text in some for name in pieces[text]} for split, some in different.items()}
    chosen = match_classes(names, where)
    classes = in_order(set(chosen.values()))
    number = {name: classes.index(as_class) for name, as_class in chosen.items()}
    numbers = {text: sorted({number[name] for name in some}) for text, some in pieces.items()}
    say.warn(
        f"{where}: columns.label={column} is read as several labels an image, with {_NAMES[separator]} between them "
        f"({len(classes):,} classes)",
        stacklevel=4,
    )
    lists = LabelLists.from_lists([numbers[value] if _is_known(value) else None for value in values])
    return {"multi_labels": lists.indicator(np.arange(len(classes))), "classes": classes}


def _is_known(value: Any) -> bool:
    return has_value(value) and str(value).strip().lower() not in _NOTHING


def _is_list(text: str) -> bool:
    return text.lstrip()[:1] == "[" and text.rstrip()[-1:] == "]"
