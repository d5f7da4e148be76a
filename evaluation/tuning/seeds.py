"""Seeds of PyTorch's generators as functions of a purpose and its numbers."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from sslkit.runtime.distributed import rank


def seed_of(purpose: str, *numbers: int) -> int:
    """Return the seed of one purpose's draws, independent of other purposes and numbers."""
    text = " ".join([purpose, *map(str, numbers)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


def dropout_seed(seed: int, step: int) -> int:
    """Return the seed of PyTorch's global generators at a step; every rank has its own."""
    return seed_of("dropout", seed, step, *([rank()] if rank() else []))


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed PyTorch's global generators, on the CPU and on the device."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


@contextmanager
def generators_restored(device: torch.device) -> Iterator[None]:
    """Restore PyTorch's global generators after the block, in which the device is the current one."""
    cuda = device.type == "cuda"
    with torch.cuda.device(device) if cuda else nullcontext(), torch.random.fork_rng([device] if cuda else []):
        yield
