"""Heads first: the new parts of a run from given weights learn alone, before its network is trained with them.

New parts, such as a projector, send random gradients into the network, and 28 steps of them harm its features; alone
for a tenth of the steps they do not (tests/training/test_unfreezing_harm.py, benchmarks/LOG.md).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from sslkit.backbones.base import Backbone
from sslkit.composition.method import Method
from sslkit.runtime import distributed

SHARE = 0.1  # of the steps, as of the warm-up: DIET-CP (2509.06990) has the same


def count_steps(unfreeze: float | None, method: Method, steps: int, epochs: float) -> int:
    """Steps in which the new parts learn alone, from 1 to all but one; 0 for a method that has none.

    unfreeze: a share of `steps`, or from 1 on epochs, of `epochs`; None: 0.
    """
    network = set(method.backbone.parameters())
    if not unfreeze or all(p in network for p in method.parameters() if p.requires_grad):
        return 0
    alone = round(unfreeze * (steps if unfreeze < 1 else steps / epochs))
    return min(max(alone, 1), steps - 1)


def hold_networks(method: Method, is_held: bool) -> None:
    """Keep the batch norms' statistics of student, teacher and slow network, or let them move again.

    A teacher that averages a held student then stays equal to it, bit for bit.
    """
    for module in method.modules():
        if isinstance(module, Backbone):
            module.hold(is_held)


@contextmanager
def freeze(network: nn.Module) -> Iterator[list[nn.Parameter]]:
    """What is computed inside leaves no gradient in the network, and passes it on to what its layers are given.

    Yields the parameters, whose `requires_grad` is as before afterwards, as DDP must find it.
    """
    weights = [p for p in network.parameters() if p.requires_grad]
    for p in weights:
        p.requires_grad_(False)
    try:
        yield weights
    finally:
        for p in weights:
            p.requires_grad_(True)


def zero_of(parameters: list[nn.Parameter]) -> torch.Tensor | float:
    """A loss of zero with gradients of zero, which DDP waits for from each parameter; of a single process 0.0."""
    if distributed.world_size() == 1:
        return 0.0
    whole = [p for p in parameters if not hasattr(p, "to_local")]  # FSDP waits for no parameter
    return 0.0 * sum(p.sum() for p in whole)
