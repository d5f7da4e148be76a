"""Leave images that cannot be read out of a split, before anything is computed from it."""

from collections.abc import Sequence

import numpy as np

from evaluation.datasets.base import Split
from sslkit.data.loader import batches_in_order
from sslkit.runtime.distributed import rank
from sslkit.terminal import say

SIDE = 32  # pixels: a JPEG is decoded faster to a small size, and damage is found all the same
READ = 64  # images at a time
SHOWN = 5


def readable(split: Split) -> Split:
    """Return the split without images that cannot be read, and warn of them; images in memory are not looked at."""
    if not split.images.decodes:
        return split
    small = split.images.at(image_size=SIDE, channels=split.images.channels, fit="squash")
    kept = np.zeros(len(split), dtype=bool)
    for rows, batch in batches_in_order(small, range(len(split)), READ, workers="auto"):
        kept[rows] = batch["index"].numpy() == rows  # an unreadable image is replaced by another
    if kept.all():
        return split
    warn_of_unreadable(split.ids[~kept].tolist(), len(split), split.name)
    return split.take(np.flatnonzero(kept))


def warn_of_unreadable(names: Sequence[str], n: int, data: str) -> None:
    """Warn of the images that are left out of n; nothing without any, and on other ranks."""
    if names and rank() == 0:
        shown = ", ".join(names[:SHOWN]) + (" ..." if len(names) > SHOWN else "")
        say.warning(f"{len(names)} of {n} images of {data} cannot be read and are left out: {shown}")
