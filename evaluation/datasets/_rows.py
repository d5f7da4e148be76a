"""What tells the rows of a data set apart, and the numbers of their labels."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from sslkit.errors import UserError


def row_ids(rows: np.ndarray) -> np.ndarray:
    """(N,) a hash of each row's values, equal rows being counted: names that do not depend on the order."""
    seen: dict[str, int] = {}
    ids = []
    for row in rows:
        name = hashlib.blake2b(np.ascontiguousarray(row), digest_size=12).hexdigest()
        seen[name] = seen.get(name, 0) + 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return np.array(ids)


def renumbered(y: np.ndarray, classes: Sequence[str], index: Mapping[str, int], where: str) -> np.ndarray:
    """Labels (N,) of `classes` in the numbers that training uses, `index`: name -> label.

    Raises UserError naming the classes of y that training has no image of.
    """
    used = np.unique(y)
    unseen = [classes[label] for label in used if classes[label] not in index]
    if unseen:
        shown = ", ".join(unseen[:5]) + (f" and {len(unseen) - 5} more" if len(unseen) > 5 else "")
        raise UserError(f"{where} has classes that train has no image of: {shown}; leave their rows out")
    table = np.full(len(classes), -1)
    table[used] = [index[classes[label]] for label in used]
    return table[y]
