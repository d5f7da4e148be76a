"""Seeds of PyTorch's generators as functions of a purpose and its numbers."""

import hashlib

from sslkit.runtime.distributed import rank


def seed_of(purpose: str, *numbers: int) -> int:
    """Return the seed of one purpose's draws, independent of other purposes and numbers."""
    text = " ".join([purpose, *map(str, numbers)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


def dropout_seed(seed: int, step: int) -> int:
    """Return the seed of PyTorch's global generators at a step; every rank has its own."""
    return seed_of("dropout", seed, step, *([rank()] if rank() else []))
