"""Row ids of a data set."""

import hashlib

import numpy as np


def row_ids(rows: np.ndarray) -> np.ndarray:
    """Return (N,) hashes of the rows' values, numbered where rows are equal: ids that do not depend on the order."""
    seen: dict[str, int] = {}
    ids = []
    for row in rows:
        name = hashlib.blake2b(np.ascontiguousarray(row), digest_size=12).hexdigest()
        seen[name] = seen.get(name, 0) + 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return np.array(ids)
