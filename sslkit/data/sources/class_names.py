"""Classes by name: those that people read as the same are one, and labels of two lists of classes are matched."""

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from sslkit.errors import UserError
from sslkit.terminal import say

_DIGITS = 19  # of a class that is a number
_SHOWN = 3  # classes in a warning


def as_read(name: str) -> str:
    """The form in which names are compared: without letter case, accents in one way, blanks for underscores."""
    plain = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
    return " ".join(plain.replace("_", " ").split())


def in_order(classes: Collection[str]) -> list[str]:
    """Classes by name; by value if all are whole numbers."""
    are_numbers = all(name.isdecimal() and len(name) < _DIGITS for name in classes)
    return sorted(classes, key=lambda name: (int(name), name) if are_numbers else name)


def match_classes(of_splits: Mapping[str, Iterable[str]], where: str) -> dict[str, str]:
    """The class of each name that occurs in the splits, "train" first.

    Names that people read as one are the class of the first split that has it, with a warning; those of which one split
    has two stay classes of their own, with a warning, too. where: of the data, for these.
    """
    spelled: dict[str, dict[str, list[str]]] = {}
    for split, names in of_splits.items():
        for name in sorted(set(names)):
            spelled.setdefault(as_read(name), {}).setdefault(split, []).append(name)
    chosen, merged, doubtful = {}, [], []
    for of_class in spelled.values():
        names = list(dict.fromkeys(name for group in of_class.values() for name in group))
        is_one_class = all(len(group) == 1 for group in of_class.values())
        chosen |= {name: names[0] if is_one_class else name for name in names}
        if len(names) > 1:
            (merged if is_one_class else doubtful).append(names)
    _warn(where, merged, "are one class, since they differ in letter case, blanks or the code of an accent alone")
    _warn(where, doubtful, "are classes of their own, though people read them as one: give them one name to join them")
    return chosen


def _warn(where: str, groups: Sequence[Sequence[str]], said: str) -> None:
    if groups:
        shown = "; ".join(" and ".join(map(_quote, names)) for names in groups[:_SHOWN])
        more = f"; and {len(groups) - _SHOWN} more such" if len(groups) > _SHOWN else ""
        say.warn(f"{where}: {shown}{more} {said}", stacklevel=3)


def _quote(name: str) -> str:
    """The name, with codes in the place of accents that are written apart."""
    return repr(name) if unicodedata.is_normalized("NFC", name) else ascii(name)


def renumber(y: np.ndarray, classes: Sequence[str], learned: Sequence[str], where: str) -> np.ndarray:
    """Renumber labels (N,) of `classes` as those of `learned`, the classes of train; by name, if the lists differ.

    -1, for no label, stays. Names are compared as in `match_classes`.
    Raises UserError naming the classes of y that are not in train, and names that two classes of one list share.
    """
    if list(classes) == list(learned):
        return y
    for names in (classes, learned):
        twice = [name for name, number in Counter(names).items() if number > 1]
        if twice:
            raise UserError(f"{where}: two classes are called {twice[0]}, so that they cannot be matched by name")
    chosen = match_classes({"train": learned, "test": classes}, where)
    used, index = np.unique(y[y >= 0]), {name: label for label, name in enumerate(learned)}
    refuse_classes([classes[label] for label in used if chosen[classes[label]] not in index], where)
    table = np.full(len(classes), -1)
    table[used] = [index[chosen[classes[label]]] for label in used]
    return np.where(y >= 0, table[y], -1)


def known(
    y: np.ndarray, classes: Sequence[str], learned: np.ndarray, learned_classes: Sequence[str], where: str
) -> tuple[np.ndarray, list[str]]:
    """Labels (M,) of `classes` numbered as those of train, (N,) of `learned_classes`, and classes that train lacks.

    -1 for the images of these. Names are compared as in `match_classes`. Raises UserError if train has none of them.
    """
    same = list(classes) == list(learned_classes)
    of_name = {} if same else match_classes({"train": learned_classes, "test": classes}, where)
    index = {learned_classes[label]: label for label in np.unique(learned[learned >= 0])}
    used = np.unique(y[y >= 0])
    names = [of_name.get(classes[label], classes[label]) for label in used]
    table = np.full(len(classes) + 1, -1)
    table[used] = [index.get(name, -1) for name in names]
    missing = [classes[label] for label, name in zip(used, names, strict=True) if name not in index]
    if missing and len(missing) == len(used):
        both = f"train has {list_names(list(index))}, test {list_names(missing)}"
        raise UserError(f"{where}: train and test have no class in common: {both}")
    return table[y], missing


def unseen(y: np.ndarray, train: np.ndarray, classes: Sequence[str], where: str) -> None:
    """Raise UserError naming the classes of labels y (M,) that do not occur in train (N,)."""
    refuse_classes([classes[label] for label in np.setdiff1d(y, train)], where)


def refuse_classes(unseen: Sequence[str], where: str) -> None:
    """Raise UserError naming classes that train has no image of, if there are any."""
    if unseen:
        raise UserError(f"{where} has classes that train has no image of: {list_names(unseen)}; leave their rows out")


def list_names(names: Sequence[str], most: int = 5) -> str:
    """The first names for a message, and the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
