"""The teacher of momentum methods: a slow copy of the student."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from sslkit.errors import UserError
from sslkit.runtime import distributed

CAST = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)  # layers whose weights autocast casts, and no subclasses of them
_HALVES = WeakIdKeyDictionary()  # of a teacher's parameters: half copies, whose places in memory stay


def copy_of(*modules: nn.Module) -> nn.Sequential:
    """A copy of the modules in sequence, without gradient."""
    return copy.deepcopy(nn.Sequential(*modules)).requires_grad_(False)


@contextmanager
def inference(*modules: nn.Module) -> Iterator[None]:
    """Run a teacher's pass without gradient; under autocast with weights that are cast in one launch.

    Autocast keeps the cast weights of a student for a step, and casts those without gradient anew, each in a launch of
    its own. (torch.inference_mode would forbid that a loss with gradient keeps the targets.)
    """
    layers = [layer for module in modules for layer in module.modules() if type(layer) in CAST]
    parameters = (layer._parameters.get(name) for layer in layers for name in ("weight", "bias"))
    weights = [p for p in dict.fromkeys(parameters) if p is not None and p.dtype is torch.float32]
    with torch.no_grad():
        if not weights or not torch.is_autocast_enabled(weights[0].device.type):
            yield
            return
        whole = [p.data for p in weights]
        halves = [_half(p) for p in weights]
        torch._foreach_copy_(halves, whole)
        try:
            _point(weights, halves)
            yield
        finally:
            _point(weights, whole)


def _half(p: Tensor) -> Tensor:
    """Memory for a parameter in autocast's number format."""
    dtype, copy = torch.get_autocast_dtype(p.device.type), _HALVES.get(p)
    if copy is None or (copy.dtype, copy.device, copy.shape, copy.stride()) != (dtype, p.device, p.shape, p.stride()):
        copy = _HALVES[p] = torch.empty_like(p, dtype=dtype, requires_grad=False)
    return copy


def _point(weights: list[Tensor], to: list[Tensor]) -> None:
    for p, data in zip(weights, to, strict=True):
        p.data = data


def check_momentum(momentum: float) -> float:
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
