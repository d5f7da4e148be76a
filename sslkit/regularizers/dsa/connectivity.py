"""The connectivity scores of a whole data set, computed once and cached by content."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sslkit.priors._features import FeatureTable
from sslkit.runtime.kept_arrays import key_of, stored
from sslkit.runtime.waiting import together


def connectivity(
    table: FeatureTable, score: Callable[[np.ndarray], Tensor], *about: object, cache: Path | None
) -> Tensor:
    """score(the table's array), (N,) float32 on the CPU, computed once: read from the cache if it is there.

    about: all that the scores depend on besides the table's content. All ranks must call this.
    """
    what = "the connectivity scores"
    if cache is None:
        with together(what):
            return score(table.array)
    path = Path(cache) / f"scores-{key_of(table.array, *about)}.npy"
    found = stored(path, len(table), lambda _: [score(table.array).numpy()], what=what)
    return torch.from_numpy(np.array(found))
