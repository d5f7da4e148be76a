"""Row ids of a data set, and renumbering of its labels."""

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from sslkit.errors import UserError


def row_ids(rows: np.ndarray) -> np.ndarray:
    """Return (N,) hashes of the rows' values, numbered where rows are equal: ids that do not depend on the order."""
    seen: dict[str, int] = {}
    ids = []
    for row in rows:
        name = hashlib.blake2b(np.ascontiguousarray(row), digest_size=12).hexdigest()
        seen[name] = seen.get(name, 0) + 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return np.array(ids)


def renumbered(y: np.ndarray, classes: Sequence[str], learned: Sequence[str], where: str) -> np.ndarray:
    """Renumber labels (N,) of `classes` as those of `learned`, the classes of train; by name, if the lists differ.

    -1, for no label, stays.
    Raises UserError naming the classes of y that are not in train, and names that two classes of one list share.
    """
    if list(classes) == list(learned):
        return y
    for names in (classes, learned):
        twice = [name for name, number in Counter(names).items() if number > 1]
        if twice:
            raise UserError(f"{where}: two classes are called {twice[0]}, so that they cannot be matched by name")
    used, index = np.unique(y[y >= 0]), {name: label for label, name in enumerate(learned)}
    refuse_classes([classes[label] for label in used if classes[label] not in index], where)
    table = np.full(len(classes), -1)
    table[used] = [index[classes[label]] for label in used]
    return np.where(y >= 0, table[y], -1)


def unseen(y: np.ndarray, train: np.ndarray, classes: Sequence[str], where: str) -> None:
    """Raise UserError naming the classes of labels y (M,) that do not occur in train (N,)."""
    refuse_classes([classes[label] for label in np.setdiff1d(y, train)], where)


def refuse_classes(unseen: Sequence[str], where: str) -> None:
    """Raise UserError naming classes that train has no image of, if there are any."""
    if unseen:
        shown = ", ".join(unseen[:5]) + (f" and {len(unseen) - 5} more" if len(unseen) > 5 else "")
        raise UserError(f"{where} has classes that train has no image of: {shown}; leave their rows out")
