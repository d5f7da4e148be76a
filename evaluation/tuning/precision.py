"""Precision of a network: float32, or bfloat16 autocast."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from sslkit.errors import UserError
from sslkit.options.members import nearest

PRECISIONS = ("float32", "bfloat16")
FABRIC = {"float32": "32-true", "bfloat16": "bf16-mixed"}  # Fabric's names


def check_precision(precision: str) -> None:
    """Raise UserError for an unknown precision."""
    if precision not in PRECISIONS:
        raise UserError(f"there is no precision {precision!r}: {nearest(str(precision), PRECISIONS)}")


def autocast(precision: str, x: Tensor) -> AbstractContextManager:
    """Return bfloat16 autocast on the device of `x` if requested, else no context."""
    return torch.autocast(x.device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()
