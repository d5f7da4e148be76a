"""Row ids of a data set, and renumbering of its labels."""

import hashlib
from collections.abc import Mapping, Sequence

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


def renumbered(y: np.ndarray, classes: Sequence[str], index: Mapping[str, int], where: str) -> np.ndarray:
    """Renumber labels (N,) of `classes` as in training. index: class name -> training label.

    Raises UserError naming the classes of y that have no training image.
    """
    used = np.unique(y)
    unseen = [classes[label] for label in used if classes[label] not in index]
    if unseen:
        shown = ", ".join(unseen[:5]) + (f" and {len(unseen) - 5} more" if len(unseen) > 5 else "")
        raise UserError(f"{where} has classes that train has no image of: {shown}; leave their rows out")
    table = np.full(len(classes), -1)
    table[used] = [index[classes[label]] for label in used]
    return table[y]
