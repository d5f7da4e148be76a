"""Batch norms that run twice on one batch, and count it once."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def kept(module: nn.Module) -> Iterator[None]:
    """Keep the running statistics of the module's batch norms from what runs inside the context.

    Their momentum is 0 there, and other tensors count the batches. (Without statistics, `track_running_stats=False`, a
    recomputed pass would save other tensors than the first.)
    """
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.num_batches_tracked is not None]
    before = [(norm, norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm, _, count in before:
        norm.momentum, norm.num_batches_tracked = 0.0, torch.zeros_like(count)
    try:
        yield
    finally:
        for norm, momentum, count in before:
            norm.momentum, norm.num_batches_tracked = momentum, count
