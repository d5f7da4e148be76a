"""Schedules of the learning rate."""

import math


def cosine(step: int, steps: int) -> float:
    """Return the factor of the learning rate at step 0 ... steps - 1: from 1 towards 0 (SGDR, eq. 5)."""
    return (1 + math.cos(math.pi * step / steps)) / 2
