"""The cosine of every schedule."""

import math


def cosine(step: float, steps: float) -> float:
    """Return half a cosine that falls from 1 at step 0 to 0 at `steps` (Loshchilov & Hutter 2017, SGDR, eq. 5)."""
    return (1 + math.cos(math.pi * step / steps)) / 2
