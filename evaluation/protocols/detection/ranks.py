"""Several processes as one training: what `torchrun` says in the environment, made into a process group."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from evaluation.features.checks import device_of
from sslkit.distributed import rank, world_size

PATIENCE = timedelta(days=2)  # rank 0 tests alone, which on COCO takes longer than PyTorch's ten minutes


@contextmanager
def process_group(device: str = "auto") -> Iterator[torch.device]:
    """This rank's device; a group of all ranks for the block if torchrun started more than one.

    device: "auto" is a GPU if there is one; with several ranks the GPU of LOCAL_RANK.
    Raises UserError for a GPU that is not there.
    """
    own = device_of(device)
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1 and own.type == "cuda":
        own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(own)
    if ranks == 1 or dist.is_initialized():
        yield own
        return
    dist.init_process_group("nccl" if own.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield own
    finally:
        dist.destroy_process_group()


def same_on_all_ranks(number: int, device: torch.device) -> bool:
    """Whether every rank says the same number."""
    if world_size() == 1:
        return True
    ends = torch.tensor([number, -number], device=device)
    dist.all_reduce(ends, dist.ReduceOp.MAX)
    return ends.sum().item() == 0


def agreed(found: bool, device: torch.device) -> bool:
    """What rank 0 found, on every rank."""
    if world_size() == 1:
        return found
    said = torch.tensor(int(found and rank() == 0), device=device)
    dist.broadcast(said, 0)
    return bool(said)
