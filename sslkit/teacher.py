"""The slow copy of a student that momentum methods learn from."""

import copy
import math

import torch
from torch import nn


def copy_of(*modules: nn.Module) -> nn.Sequential:
    """The modules one after the other, copied, without gradient."""
    return copy.deepcopy(nn.Sequential(*modules)).requires_grad_(False)


def cosine(start: float, end: float, progress: float) -> float:
    """From start to end along half a cosine while progress goes from 0 to 1."""
    return end + (start - end) * (math.cos(math.pi * progress) + 1) / 2


@torch.no_grad()
def follow(teacher: nn.Sequential, *modules: nn.Module, momentum: float) -> None:
    """teacher <- momentum teacher + (1 - momentum) student, batch-norm buffers too; counters are copied."""
    student = nn.Sequential(*modules)
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - momentum)
    for slow, fast in zip(teacher.buffers(), student.buffers(), strict=True):
        if slow.is_floating_point():
            slow.lerp_(fast, 1 - momentum)
        else:
            slow.copy_(fast)
