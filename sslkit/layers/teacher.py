"""The slow copy of a student that momentum methods learn from."""

import copy
import math

import torch
from torch import nn

from sslkit.errors import UserError


def copy_of(*modules: nn.Module) -> nn.Sequential:
    """The modules one after the other, copied, without gradient."""
    return copy.deepcopy(nn.Sequential(*modules)).requires_grad_(False)


def checked(momentum: float) -> float:
    """momentum, once it is from 0 (the student itself) to 1 (stands still). Raises UserError."""
    if not 0 <= momentum <= 1:
        raise UserError(f"momentum={momentum} is no share of the teacher to keep: give a number from 0 to 1")
    return momentum


def cosine(start: float, end: float, progress: float) -> float:
    """From start to end along half a cosine while progress goes from 0 to 1."""
    return end + (start - end) * (math.cos(math.pi * progress) + 1) / 2


@torch.no_grad()
def follow(teacher: nn.Sequential, *modules: nn.Module, momentum: float) -> None:
    """teacher <- momentum teacher + (1 - momentum) student, batch-norm buffers too; counters are copied.

    Each kind in one call: a launch for every buffer would take longer than the arithmetic.
    """
    student = nn.Sequential(*modules)
    pairs = [
        *zip(teacher.parameters(), student.parameters(), strict=True),
        *zip(teacher.buffers(), student.buffers(), strict=True),
    ]
    averaged = [pair for pair in pairs if pair[0].is_floating_point()]
    counted = [pair for pair in pairs if not pair[0].is_floating_point()]
    if averaged:
        torch._foreach_lerp_(*map(list, zip(*averaged, strict=True)), 1 - momentum)
    if counted:
        torch._foreach_copy_(*map(list, zip(*counted, strict=True)))
