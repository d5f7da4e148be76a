"""Leave images that cannot be read out of a split, before anything is computed from it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evaluation.datasets._copies import looked_at
from evaluation.datasets.base import Split
from sslkit.runtime.distributed import rank
from sslkit.terminal import say

SHOWN = 5


def readable(split: Split) -> Split:
    """Return the split with the digests of its images and without those that cannot be read, and warn of these."""
    kept, digests = looked_at(split)
    split = replace(split, pixel_digests=digests)
    if kept.all():
        return split
    warn_of_unreadable(split.ids[~kept].tolist(), len(split), split.name)
    return split.take(np.flatnonzero(kept))


def warn_of_unreadable(names: Sequence[str], n: int, data: str) -> None:
    """Warn of the images that are left out of n; nothing without any, and on other ranks."""
    if names and rank() == 0:
        shown = ", ".join(names[:SHOWN]) + (" ..." if len(names) > SHOWN else "")
        say.warning(f"{len(names)} of {n} images of {data} cannot be read and are left out: {shown}")
