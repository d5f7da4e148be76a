"""Leave images that cannot be read out of a split, before anything is computed from it."""

from collections.abc import Sequence

import numpy as np

from evaluation.datasets._copies import identify
from evaluation.datasets.base import Split
from sslkit.runtime.distributed import rank
from sslkit.terminal import say

SHOWN = 5  # names of unreadable images in a line: enough to see where they lie


def readable(split: Split) -> Split:
    """Return the split with the digests of its images and without those that cannot be read, and warn of these."""
    is_readable, split = identify(split)
    if is_readable.all():
        return split
    warn_of_unreadable(split.ids[~is_readable].tolist(), len(split), split.name)
    return split.take(np.flatnonzero(is_readable))


def warn_of_unreadable(names: Sequence[str], n: int, data: str) -> None:
    """Warn of the images that are left out of n; nothing without any, and on other ranks."""
    if names and rank() == 0:
        shown = ", ".join(names[:SHOWN]) + (" ..." if len(names) > SHOWN else "")
        say.warning(f"{len(names)} of {n} images of {data} cannot be read and are left out: {shown}")
