"""The teacher of momentum methods: a slow copy of the student."""

import copy

import torch
from torch import nn

from sslkit.errors import UserError
from sslkit.runtime import distributed


def copy_of(*modules: nn.Module) -> nn.Sequential:
    """A copy of the modules in sequence, without gradient."""
    return copy.deepcopy(nn.Sequential(*modules)).requires_grad_(False)


def checked(momentum: float) -> float:
    """Return `momentum` if it is from 0 (equal to the student) to 1 (constant). Raises UserError otherwise."""
    if not 0 <= momentum <= 1:
        raise UserError(f"momentum must be from 0 to 1, got {momentum}")
    return momentum


@torch.no_grad()
def follow(teacher: nn.Sequential, *modules: nn.Module, momentum: float) -> None:
    """teacher <- momentum teacher + (1 - momentum) student, batch-norm buffers too; counters are copied.

    Each kind in one call: one launch per buffer would take longer than the arithmetic.
    """
    student = nn.Sequential(*modules)
    pairs = [
        *zip(teacher.parameters(), student.parameters(), strict=True),
        *zip(teacher.buffers(), student.buffers(), strict=True),
    ]
    pairs = [tuple(map(distributed.local, pair)) for pair in pairs]  # each process moves its share
    averaged = [pair for pair in pairs if pair[0].is_floating_point()]
    counted = [pair for pair in pairs if not pair[0].is_floating_point()]
    if averaged:
        torch._foreach_lerp_(*map(list, zip(*averaged, strict=True)), 1 - momentum)
    if counted:
        torch._foreach_copy_(*map(list, zip(*counted, strict=True)))
