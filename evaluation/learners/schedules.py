"""Schedules of the learning rate."""

import math


def cosine(step: int, steps: int) -> float:
    """Factor of the learning rate at step 0 ... steps - 1: 1 at the first, towards 0 (SGDR, eq. 5)."""
    return (1 + math.cos(math.pi * step / steps)) / 2
