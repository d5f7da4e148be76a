"""The schedules of a run: numbers that depend on the finished share of its steps, or on the epoch.

Weight decay and learning rate, which belong to the optimiser, are in `training.step`, as is layer decay.
"""

import math


def cosine(step: float, steps: float) -> float:
    """Return half a cosine that falls from 1 at step 0 to 0 at `steps` (Loshchilov & Hutter 2017, SGDR, eq. 5)."""
    return (1 + math.cos(math.pi * step / steps)) / 2


def along_cosine(start: float, end: float, progress: float) -> float:
    """Half a cosine from start to end, as progress goes from 0 to 1: the momentum of BYOL's teacher and others."""
    return end + (start - end) * cosine(progress, 1)


def along_line(start: float, end: float, progress: float) -> float:
    """A line from start to end, as progress goes from 0 to 1: the momentum of I-JEPA's teacher."""
    return start + (end - start) * progress


def warm_up(start: float, end: float, epoch: int, epochs: int) -> float:
    """Rise from start to end in equal steps over the first epochs, then stay: the temperature of DINO's teacher."""
    if epoch >= epochs:
        return end
    return along_line(start, end, epoch / max(epochs - 1, 1))
